// Runs a model's units for generation: prompts in one pass, then one token a sequence against cached keys and values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/tensor_view.h"
#include "base/thread_pool.h"
#include "eval/inference_model.h"
#include "eval/kv_cache.h"
#include "ops/attention.h"
#include "runtime/forward_memory.h"

namespace lazytrain::eval {

// What memory is laid out for.
struct DecoderLimits {
  int64_t sequences = 1;       // that run at a time
  int64_t prefill_tokens = 1;  // of the prompts of one prefill() together
  int64_t cache_rows = 1;      // of all sequences that run at a time
};

// The rows of one sequence in the cache.
struct SequenceRows {
  int64_t first = 0;
  int64_t length = 0;  // tokens whose keys and values are there
};

// Interprets the same op lists that training runs (a model family is declared once): row ops compute as in training,
// attention reads the cache. Only logits of last positions are computed.
class Decoder {
 public:
  // Model and pool outlive the decoder. Throws UsageError for an op that mixes tokens and is not attention, RunError
  // when the memory is not there.
  Decoder(const InferenceModel& model, ThreadPool& pool, const DecoderLimits& limits);

  KvCache& cache() { return cache_; }
  int64_t bytes() const { return cache_.bytes() + memory_.bytes() + logits_memory_.bytes(); }

  // Whole prompts, none empty. Stores their keys and values and sets `length` of each sequence. Returns the logits of
  // their last tokens, [prompts, vocabulary] fp32, valid until the next call.
  TensorView prefill(std::span<const std::span<const int32_t>> prompts, std::span<SequenceRows> sequences);
  // Appends ids[i] to sequence i (`length` grows by one) and returns the logits behind them, likewise.
  TensorView decode(std::span<const int32_t> ids, std::span<SequenceRows> sequences);

 private:
  struct Batch;
  ops::CpuContext context(const ops::Tokens& tokens) const;
  void run_unit(int unit, const Batch& batch);
  void store(int unit, const graph::Op& op, int layer, const Batch& batch);
  void attend(int unit, const graph::Op& op, int layer, const Batch& batch);
  TensorView value(int unit, graph::ValueId id, const ops::Tokens& tokens) const;
  TensorView logits(const Batch& batch);

  const InferenceModel& model_;
  ThreadPool& pool_;
  KvCache cache_;
  runtime::ForwardMemory memory_;
  runtime::Arena logits_memory_;
  std::vector<runtime::UnitBinding> bindings_;  // by unit
  std::vector<int> first_attention_;            // by unit: attention ops before it
  std::vector<ops::CachedSequence> cached_;     // of the running call
};

}  // namespace lazytrain::eval
