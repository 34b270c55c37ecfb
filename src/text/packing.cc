#include "text/packing.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"

namespace lazytrain::text {
namespace {

constexpr size_t kOpenRows = 64;
constexpr uint64_t kShuffleStream = 0x726f7773;  // "rows": keeps these numbers apart from other uses of the seed

}  // namespace

std::vector<Row> make_rows(const TokenSet& samples, int64_t seq, bool pack) {
  std::vector<Row> rows;
  std::multimap<int64_t, size_t> open;  // room left -> row
  for (int64_t i = 0; i < samples.count(); ++i) {
    const int64_t length = samples.length(i);
    if (length > seq) throw UsageError("sample {} has {} tokens, more than seq = {}", i, length, seq);
    const auto fit = pack ? open.lower_bound(length) : open.end();
    size_t row = rows.size();
    int64_t room = seq;
    if (fit != open.end()) {
      room = fit->first;
      row = fit->second;
      open.erase(fit);
    } else {
      rows.emplace_back();
    }
    rows[row].samples.push_back(static_cast<int32_t>(i));
    if (room > length) open.emplace(room - length, row);
    if (open.size() > kOpenRows) open.erase(open.begin());
  }
  return rows;
}

double fill_ratio(const TokenSet& samples, const std::vector<Row>& rows, int64_t seq) {
  if (rows.empty()) return 0;
  return static_cast<double>(samples.tokens.size()) / (static_cast<double>(rows.size()) * static_cast<double>(seq));
}

RowOrder::RowOrder(uint64_t seed, int64_t rows, bool shuffle) : seed_(seed), rows_(rows), shuffle_(shuffle) {
  if (rows < 1) throw UsageError("there are no rows to train on");
}

int64_t RowOrder::at(int64_t position) {
  const int64_t epoch = position / rows_;
  const int64_t index = position % rows_;
  if (!shuffle_) return index;
  if (epoch != epoch_) {
    // Fisher-Yates, the i-th draw being a pure function of (seed, epoch, i).
    const CounterRng rng(seed_, kShuffleStream + mix64(static_cast<uint64_t>(epoch)));
    permutation_.resize(static_cast<size_t>(rows_));
    std::iota(permutation_.begin(), permutation_.end(), int64_t{0});
    for (int64_t i = rows_ - 1; i > 0; --i) {
      const uint64_t j = rng.below(static_cast<uint64_t>(i), static_cast<uint64_t>(i) + 1);
      std::swap(permutation_[static_cast<size_t>(i)], permutation_[j]);
    }
    epoch_ = epoch;
  }
  return permutation_[static_cast<size_t>(index)];
}

std::vector<int64_t> RowOrder::of_step(int64_t step, int64_t batch) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < batch; ++i) rows.push_back(at((step - 1) * batch + i));
  return rows;
}

}  // namespace lazytrain::text
