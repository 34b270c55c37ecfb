// Which samples share a row, and in which order rows are trained on.
#pragma once

#include <cstdint>
#include <vector>

#include "text/samples.h"

namespace lazytrain::text {

// Samples of one row in file order; each is a document of its own.
struct Row {
  std::vector<int32_t> samples;
};

// One sample a row, or with `pack` rows of at most `seq` tokens: each sample in file order goes to the open row where
// it leaves the least room, at most 64 rows being open. Deterministic. Rows are in the order of their first samples.
std::vector<Row> make_rows(const TokenSet& samples, int64_t seq, bool pack);

// Share of rows * seq that holds tokens.
double fill_ratio(const TokenSet& samples, const std::vector<Row>& rows, int64_t seq);

// The row at any position of training, epoch after epoch. With shuffle each epoch is a permutation that depends on seed
// and epoch alone; without, rows come in order and wrap round. Any position is reached without those before it.
class RowOrder {
 public:
  RowOrder(uint64_t seed, int64_t rows, bool shuffle);

  int64_t at(int64_t position);
  // Rows of step 1, 2, ...: positions (step - 1) * batch to step * batch - 1.
  std::vector<int64_t> of_step(int64_t step, int64_t batch);

 private:
  uint64_t seed_;
  int64_t rows_;
  bool shuffle_;
  int64_t epoch_ = -1;  // of the permutation at hand
  std::vector<int64_t> permutation_;
};

}  // namespace lazytrain::text
