#include "text/batch.h"

#include <limits>

#include "base/error.h"

namespace lazytrain::text {

TokenBatch make_batch(const TokenSet& samples, const std::vector<Row>& all, std::span<const int64_t> rows) {
  TokenBatch batch;
  batch.doc_starts.push_back(0);
  for (const int64_t row : rows) {
    for (const int32_t sample : all.at(static_cast<size_t>(row)).samples) {
      const auto ids = samples.ids(sample);
      const auto is_target = samples.targets(sample);
      if (batch.ids.size() + ids.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
        throw UsageError("a batch of more than 2^31 - 1 tokens: lower batch or seq");
      }
      for (size_t t = 0; t < ids.size(); ++t) {
        const bool learnt = t + 1 < ids.size() && is_target[t + 1] != 0;
        batch.ids.push_back(ids[t]);
        batch.positions.push_back(static_cast<int32_t>(t));
        batch.targets.push_back(learnt ? ids[t + 1] : -1);
        batch.target_count += learnt ? 1 : 0;
      }
      batch.doc_starts.push_back(static_cast<int32_t>(batch.ids.size()));
    }
  }
  return batch;
}

}  // namespace lazytrain::text
