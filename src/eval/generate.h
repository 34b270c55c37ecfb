// Text generation for one prompt or many.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/thread_pool.h"
#include "eval/inference_model.h"

namespace lazytrain::eval {

struct GenerateOptions {
  int64_t max_new_tokens = 256;
  double temperature = 0;  // 0: greedy
  uint64_t seed = 0;       // with a temperature
  int64_t batch = 32;      // sequences that run at a time
  std::vector<int32_t> stop_ids = {};
  // Called for every new token but stop ids, in the order of each sequence: for streaming.
  std::function<void(int64_t prompt, int32_t id)> on_token = {};
  // Called when a sequence has ended, with the number of those that have.
  std::function<void(int64_t ended)> on_end = {};
};

enum class StopReason : uint8_t {
  kStopId,
  kMaxNewTokens,
  kContext  // the model has no position left; with no ids at all the prompt was too long
};

struct Generation {
  std::vector<int32_t> ids;  // without the stop id
  StopReason reason = StopReason::kMaxNewTokens;
};

// Continues each prompt; results stand in the order of the prompts. The cache of keys and values is allocated once, for
// the `batch` longest sequences that are possible. A sequence that ends makes room for the next prompt at once.
//
// Sampling does not depend on how prompts are batched. The logits do in their last bits, since a matrix product of
// another height may add in another order: greedy text of fp32 is the same unless two logits tie within rounding.
//
// Throws UsageError for an empty prompt, an id outside the vocabulary or an option out of range; RunError when memory
// is short or logits are not finite.
std::vector<Generation> generate(const InferenceModel& model, ThreadPool& pool,
                                 const std::vector<std::vector<int32_t>>& prompts, const GenerateOptions& options);

}  // namespace lazytrain::eval
