#include "text/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/rng.h"
#include "text/batch.h"

namespace lazytrain::text {
namespace {

using testing::ElementsAre;

TokenSet set_of(const std::vector<std::vector<std::pair<int32_t, int>>>& samples) {
  TokenSet set;
  for (const auto& tokens : samples) {
    Sample sample;
    for (const auto& [id, target] : tokens) {
      sample.ids.push_back(id);
      sample.is_target.push_back(static_cast<uint8_t>(target));
    }
    set.add(sample);
  }
  return set;
}

TokenSet of_lengths(const std::vector<int64_t>& lengths) {
  TokenSet set;
  for (const int64_t length : lengths) {
    set.add(
        {std::vector<int32_t>(static_cast<size_t>(length), 7), std::vector<uint8_t>(static_cast<size_t>(length), 1)});
  }
  return set;
}

TEST(Packing, OneSampleARowWithoutPacking) {
  const auto rows = make_rows(of_lengths({3, 1, 2}), 8, false);
  ASSERT_EQ(rows.size(), 3u);
  for (int32_t i = 0; i < 3; ++i) EXPECT_THAT(rows[static_cast<size_t>(i)].samples, ElementsAre(i));
}

TEST(Packing, BestFitKeepsOrder) {
  // 5 opens a row (3 left), 6 another (2 left), 2 goes where it fits best, 3 fills the first.
  const auto rows = make_rows(of_lengths({5, 6, 2, 3, 8, 1}), 8, true);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_THAT(rows[0].samples, ElementsAre(0, 3));
  EXPECT_THAT(rows[1].samples, ElementsAre(1, 2));
  EXPECT_THAT(rows[2].samples, ElementsAre(4));
  EXPECT_THAT(rows[3].samples, ElementsAre(5));
  EXPECT_DOUBLE_EQ(fill_ratio(of_lengths({5, 6, 2, 3, 8, 1}), rows, 8), 25.0 / 32);
  EXPECT_THROW(make_rows(of_lengths({9}), 8, true), UsageError);
}

TEST(Packing, EverySampleOnceAndNoRowTooLong) {
  const CounterRng rng(1, 2);
  std::vector<int64_t> lengths;
  for (uint64_t i = 0; i < 20000; ++i) lengths.push_back(1 + static_cast<int64_t>(rng.below(i, 512)));
  const TokenSet set = of_lengths(lengths);
  const auto rows = make_rows(set, 1024, true);
  std::vector<int> seen(lengths.size());
  for (const Row& row : rows) {
    int64_t total = 0;
    EXPECT_TRUE(std::is_sorted(row.samples.begin(), row.samples.end()));
    for (const int32_t s : row.samples) {
      ++seen[static_cast<size_t>(s)];
      total += lengths[static_cast<size_t>(s)];
    }
    EXPECT_LE(total, 1024);
    EXPECT_GT(total, 0);
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<int64_t>(lengths.size()));
  EXPECT_GT(fill_ratio(set, rows, 1024), 0.97);
}

TEST(RowOrder, FileOrderWrapsRound) {
  RowOrder order(5, 5, false);
  EXPECT_THAT(order.of_step(1, 2), ElementsAre(0, 1));
  EXPECT_THAT(order.of_step(3, 2), ElementsAre(4, 0));
  EXPECT_THAT(order.of_step(4, 2), ElementsAre(1, 2));
  EXPECT_THAT(order.of_step(2, 7), ElementsAre(2, 3, 4, 0, 1, 2, 3));
}

TEST(RowOrder, EachEpochIsAPermutationOfItsOwn) {
  RowOrder order(42, 100, true);
  std::vector<std::vector<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < 100; ++i) rows.push_back(order.at(epoch * 100 + i));
    EXPECT_EQ(std::set<int64_t>(rows.begin(), rows.end()).size(), 100u);
    EXPECT_FALSE(std::is_sorted(rows.begin(), rows.end()));
    epochs.push_back(rows);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  RowOrder other(43, 100, true);
  EXPECT_NE(other.of_step(1, 100), epochs[0]);
}

TEST(RowOrder, AnyPositionIsReachedAlone) {
  RowOrder all(7, 33, true);
  for (const int64_t position : {200, 5, 32, 33, 0, 199, 65}) {
    RowOrder fresh(7, 33, true);
    EXPECT_EQ(fresh.at(position), all.at(position)) << position;
  }
}

TEST(RowOrder, ShuffleIsUniform) {
  // Where row 0 lands over many epochs: each of 8 places about 1000 times.
  RowOrder order(1, 8, true);
  std::vector<int> places(8);
  for (int64_t epoch = 0; epoch < 8000; ++epoch) {
    for (int64_t i = 0; i < 8; ++i) {
      if (order.at(epoch * 8 + i) == 0) ++places[static_cast<size_t>(i)];
    }
  }
  for (const int count : places) EXPECT_NEAR(count, 1000, 150);
}

TEST(RowOrder, NeedsRows) { EXPECT_THROW(RowOrder(1, 0, true), UsageError); }

TEST(Batch, TargetsAreTheNextTokensOfTheSameDocument) {
  const TokenSet set =
      set_of({{{10, 0}, {11, 0}, {12, 1}, {13, 1}}, {{20, 0}, {21, 1}}, {{30, 1}, {31, 1}, {32, 0}, {33, 1}}});
  const std::vector<Row> rows = {{{0, 1}}, {{2}}};
  const std::vector<int64_t> chosen = {0, 1};
  const TokenBatch batch = make_batch(set, rows, chosen);
  EXPECT_THAT(batch.ids, ElementsAre(10, 11, 12, 13, 20, 21, 30, 31, 32, 33));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3, 0, 1, 0, 1, 2, 3));
  // 30 is marked, but nothing of its document stands before it; 13 is the end of one: neither is predicted across.
  EXPECT_THAT(batch.targets, ElementsAre(-1, 12, 13, -1, 21, -1, 31, -1, 33, -1));
  EXPECT_THAT(batch.doc_starts, ElementsAre(0, 4, 6, 10));
  EXPECT_EQ(batch.target_count, 5);
}

TEST(Batch, TakesRowsInTheOrderGiven) {
  const TokenSet set = set_of({{{10, 0}, {11, 1}}, {{20, 0}, {21, 1}, {22, 1}}});
  const auto rows = make_rows(set, 4, false);
  const std::vector<int64_t> chosen = {1, 0, 1};
  const TokenBatch batch = make_batch(set, rows, chosen);
  EXPECT_THAT(batch.ids, ElementsAre(20, 21, 22, 10, 11, 20, 21, 22));
  EXPECT_THAT(batch.doc_starts, ElementsAre(0, 3, 5, 8));
  EXPECT_EQ(batch.target_count, 5);
  EXPECT_THROW(make_batch(set, rows, std::vector<int64_t>{2}), std::out_of_range);
}

TEST(Batch, PackedEqualsUnpacked) {
  const TokenSet set = set_of({{{10, 0}, {11, 1}}, {{20, 0}, {21, 1}, {22, 1}}, {{30, 0}, {31, 1}}});
  const auto packed = make_batch(set, make_rows(set, 8, true), std::vector<int64_t>{0});
  const auto unpacked = make_batch(set, make_rows(set, 8, false), std::vector<int64_t>{0, 1, 2});
  EXPECT_EQ(packed.ids, unpacked.ids);
  EXPECT_EQ(packed.targets, unpacked.targets);
  EXPECT_EQ(packed.positions, unpacked.positions);
  EXPECT_EQ(packed.doc_starts, unpacked.doc_starts);
}

}  // namespace
}  // namespace lazytrain::text
