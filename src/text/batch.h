// The tokens of some rows as a model takes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/packing.h"
#include "text/samples.h"

namespace lazytrain::text {

// Documents back to back, without padding. Attention stays within [doc_starts[d], doc_starts[d + 1]).
struct TokenBatch {
  std::vector<int32_t> ids;
  std::vector<int32_t> positions;   // within the document
  std::vector<int32_t> targets;     // targets[t]: the next token of the document where it is learnt, else -1
  std::vector<int32_t> doc_starts;  // one more than documents, the last is ids.size()
  int64_t target_count = 0;         // targets that are not -1
};

// `rows` index into `all`. UsageError when the tokens are more than int32_t counts.
TokenBatch make_batch(const TokenSet& samples, const std::vector<Row>& all, std::span<const int64_t> rows);

}  // namespace lazytrain::text
