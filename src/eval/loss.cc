#include "eval/loss.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "runtime/forward_loss.h"
#include "text/batch.h"
#include "text/packing.h"

namespace lazytrain::eval {
namespace {

constexpr int64_t kBatchTokens = 2048;  // rows are taken together up to here

void require_inside(const text::TokenSet& samples, int64_t vocabulary) {
  for (const int32_t id : samples.tokens) {
    if (id < 0 || id >= vocabulary) {
      throw UsageError(
          "the data holds the token {}, the model's vocabulary has {}: tokenizer and model do not belong together", id,
          vocabulary);
    }
  }
}

}  // namespace

ops::LossSum loss_of(const InferenceModel& model, ThreadPool& pool, const text::TokenSet& samples) {
  require_inside(samples, model.graph().vocabulary);
  int64_t longest = 1;
  for (int64_t i = 0; i < samples.count(); ++i) longest = std::max(longest, samples.length(i));
  const std::vector<text::Row> rows = text::make_rows(samples, longest, false);
  const int64_t tokens = std::max(longest, std::min(samples.offsets.back(), kBatchTokens));
  const graph::Dims dims{.tokens = tokens, .context = longest, .activation_bytes = size_of(model.compute())};
  require_memory(runtime::ForwardLoss::bytes_needed(model.graph(), dims, model.compute(), pool.threads()),
                 "the forward passes of the loss", "lower --seq");
  runtime::ForwardLoss forward(model.graph(), dims, model.compute(), pool);

  ops::LossSum total;
  for (int64_t next = 0; next < samples.count();) {
    std::vector<int64_t> taken;
    for (int64_t sum = 0; next < samples.count() && (taken.empty() || sum + samples.length(next) <= tokens); ++next) {
      sum += samples.length(next);
      taken.push_back(next);
    }
    const text::TokenBatch batch = text::make_batch(samples, rows, taken);
    const ops::LossSum sum = forward.run(
        {static_cast<int64_t>(batch.ids.size()), batch.ids, batch.positions, batch.targets, batch.doc_starts},
        [&](int unit, int parameter) { return model.weight(unit, parameter); });
    total.nll += sum.nll;
    total.count += sum.count;
  }
  return total;
}

}  // namespace lazytrain::eval
