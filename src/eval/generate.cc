#include "eval/generate.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "eval/decoder.h"
#include "eval/sampler.h"

namespace lazytrain::eval {
namespace {

using Prompts = std::vector<std::vector<int32_t>>;

constexpr int64_t kPrefillTokens = 1024;  // prompts are taken together up to here: large enough for full GEMM speed

void check(const GenerateOptions& options) {
  if (options.max_new_tokens < 1) throw UsageError("max-new-tokens is {}, expected 1 or more", options.max_new_tokens);
  if (options.batch < 1) throw UsageError("batch is {}, expected 1 or more", options.batch);
  if (!std::isfinite(options.temperature) || options.temperature < 0) {
    throw UsageError("temperature is {}, expected 0 (greedy) or more", options.temperature);
  }
}

void check(const Prompts& prompts, int64_t vocabulary) {
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty()) throw UsageError("prompt {} has no tokens: there is nothing to continue", i);
    for (const int32_t id : prompts[i]) {
      if (id < 0 || id >= vocabulary) {
        throw UsageError(
            "prompt {} holds the id {}, the model's vocabulary has {}: tokenizer and model do not belong together", i,
            id, vocabulary);
      }
    }
  }
}

class Generator {
 public:
  Generator(const InferenceModel& model, ThreadPool& pool, const Prompts& prompts, const GenerateOptions& options)
      : prompts_(prompts),
        options_(options),
        sampler_{options.temperature, options.seed},
        positions_(model.graph().max_positions),
        results_(prompts.size()) {
    for (int64_t i = 0; i < static_cast<int64_t>(prompts.size()); ++i) {
      if (length(i) >= positions_) {
        end(i, StopReason::kContext);
      } else {
        waiting_.push_back(i);
      }
    }
    if (!waiting_.empty()) decoder_.emplace(model, pool, limits());
  }

  std::vector<Generation> run() {
    while (!waiting_.empty() || !active_.empty()) {
      while (admit()) {
      }
      if (!active_.empty()) step();
    }
    return std::move(results_);
  }

 private:
  struct Active {
    int64_t prompt;
    int32_t last;  // sampled, not yet in the cache
  };

  int64_t length(int64_t prompt) const { return static_cast<int64_t>(prompts_[static_cast<size_t>(prompt)].size()); }
  Generation& result(int64_t prompt) { return results_[static_cast<size_t>(prompt)]; }

  // Positions a sequence can come to hold.
  int64_t rows(int64_t prompt) const {
    return length(prompt) + std::min(positions_ - length(prompt), options_.max_new_tokens);
  }

  DecoderLimits limits() const {
    std::vector<int64_t> need;
    int64_t longest = 0;
    int64_t total = 0;
    for (const int64_t prompt : waiting_) {
      need.push_back(rows(prompt));
      longest = std::max(longest, length(prompt));
      total += length(prompt);
    }
    std::sort(need.begin(), need.end(), std::greater<>());
    need.resize(std::min(need.size(), static_cast<size_t>(options_.batch)));
    return {.sequences = static_cast<int64_t>(need.size()),
            .prefill_tokens = std::max(longest, std::min(total, kPrefillTokens)),
            .cache_rows = std::accumulate(need.begin(), need.end(), int64_t{0})};
  }

  // Takes waiting prompts into the batch as far as there is room. False when none was taken.
  bool admit() {
    std::vector<std::span<const int32_t>> taken;
    std::vector<SequenceRows> rows_of_taken;
    std::vector<int64_t> numbers;
    int64_t tokens = 0;
    while (!waiting_.empty() && static_cast<int64_t>(active_.size() + taken.size()) < options_.batch) {
      const int64_t prompt = waiting_.front();
      if (!taken.empty() && tokens + length(prompt) > kPrefillTokens) break;
      const auto first = decoder_->cache().reserve(rows(prompt));
      if (!first) break;
      waiting_.pop_front();
      tokens += length(prompt);
      taken.emplace_back(prompts_[static_cast<size_t>(prompt)]);
      rows_of_taken.push_back({*first, 0});
      numbers.push_back(prompt);
    }
    if (taken.empty()) {
      if (active_.empty() && !waiting_.empty()) throw std::logic_error("the cache is too small for one sequence");
      return false;
    }
    const TensorView logits = decoder_->prefill(taken, rows_of_taken);
    for (size_t i = 0; i < numbers.size(); ++i) {
      active_.push_back({numbers[i], -1});
      sequences_.push_back(rows_of_taken[i]);
      accept(active_.size() - 1, logits, static_cast<int64_t>(i));
    }
    drop_ended();
    return true;
  }

  void step() {
    std::vector<int32_t> ids;
    for (const Active& a : active_) ids.push_back(a.last);
    const TensorView logits = decoder_->decode(ids, sequences_);
    for (size_t i = 0; i < active_.size(); ++i) accept(i, logits, static_cast<int64_t>(i));
    drop_ended();
  }

  // Samples the token behind sequence i from a row of the logits; marks the sequence with last = -1 when it ends.
  void accept(size_t i, const TensorView& logits, int64_t row) {
    Active& a = active_[i];
    const auto position = sequences_[i].length;
    const std::span values(logits.row<float>(row), static_cast<size_t>(logits.cols));
    a.last = sampler_.next(values, static_cast<uint64_t>(a.prompt), static_cast<uint64_t>(position));
    if (std::find(options_.stop_ids.begin(), options_.stop_ids.end(), a.last) != options_.stop_ids.end()) {
      return leave(a, StopReason::kStopId);
    }
    std::vector<int32_t>& ids = result(a.prompt).ids;
    ids.push_back(a.last);
    if (options_.on_token) options_.on_token(a.prompt, a.last);
    if (static_cast<int64_t>(ids.size()) == options_.max_new_tokens) return leave(a, StopReason::kMaxNewTokens);
    if (position + 1 == positions_) return leave(a, StopReason::kContext);
  }

  void leave(Active& a, StopReason reason) {
    a.last = -1;
    end(a.prompt, reason);
  }
  void end(int64_t prompt, StopReason reason) {
    result(prompt).reason = reason;
    ++ended_;
    if (options_.on_end) options_.on_end(ended_);
  }

  void drop_ended() {
    size_t kept = 0;
    for (size_t i = 0; i < active_.size(); ++i) {
      if (active_[i].last < 0) {
        decoder_->cache().release(sequences_[i].first);
        continue;
      }
      active_[kept] = active_[i];
      sequences_[kept++] = sequences_[i];
    }
    active_.resize(kept);
    sequences_.resize(kept);
  }

  const Prompts& prompts_;
  const GenerateOptions& options_;
  Sampler sampler_;
  int64_t positions_;
  std::vector<Generation> results_;
  std::deque<int64_t> waiting_;
  std::optional<Decoder> decoder_;
  std::vector<Active> active_;
  std::vector<SequenceRows> sequences_;  // of active_
  int64_t ended_ = 0;
};

}  // namespace

std::vector<Generation> generate(const InferenceModel& model, ThreadPool& pool, const Prompts& prompts,
                                 const GenerateOptions& options) {
  check(options);
  check(prompts, model.graph().vocabulary);
  try {
    return Generator(model, pool, prompts, options).run();
  } catch (const NotFinite& error) {
    const std::string broken = model.describe_broken_weight();
    if (broken.empty()) throw;
    throw RunError("{}, so the model's logits are not either: get the model again, or take one that was saved before",
                   broken);
  }
}

}  // namespace lazytrain::eval
