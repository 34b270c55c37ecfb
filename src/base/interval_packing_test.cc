#include "base/interval_packing.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace lazytrain {
namespace {

// The claim of the header by comparing all pairs.
void expect_no_overlap(const std::vector<LiveItem>& items, const Packing& packing, int64_t alignment) {
  ASSERT_EQ(packing.offsets.size(), items.size());
  int64_t end = 0;
  for (size_t a = 0; a < items.size(); ++a) {
    EXPECT_EQ(packing.offsets[a] % alignment, 0);
    EXPECT_GE(packing.offsets[a], 0);
    end = std::max(end, packing.offsets[a] + items[a].bytes);
    for (size_t b = a + 1; b < items.size(); ++b) {
      const bool together = items[a].first <= items[b].last && items[b].first <= items[a].last;
      const bool share = packing.offsets[a] < packing.offsets[b] + items[b].bytes &&
                         packing.offsets[b] < packing.offsets[a] + items[a].bytes;
      EXPECT_FALSE(together && share && items[a].bytes > 0 && items[b].bytes > 0) << a << " and " << b;
    }
  }
  EXPECT_LE(end, packing.bytes);
  EXPECT_LT(packing.bytes - end, alignment);
}

int64_t peak_by_counting(const std::vector<LiveItem>& items, int64_t alignment) {
  int64_t peak = 0;
  for (const LiveItem& at : items) {  // the peak is reached where some item begins
    int64_t live = 0;
    for (const LiveItem& item : items) {
      if (item.first <= at.first && at.first <= item.last) live += (item.bytes + alignment - 1) / alignment * alignment;
    }
    peak = std::max(peak, live);
  }
  return peak;
}

std::vector<LiveItem> random_items(uint64_t seed, int64_t count, int64_t steps) {
  const CounterRng rng(seed, 1);
  std::vector<LiveItem> items;
  for (uint64_t i = 0; i < static_cast<uint64_t>(count); ++i) {
    const auto first = static_cast<int64_t>(rng.below(4 * i, static_cast<uint64_t>(steps)));
    const auto length = static_cast<int64_t>(rng.below(4 * i + 1, 12));
    const auto bytes = static_cast<int64_t>(rng.below(4 * i + 2, 5) * 1000 + rng.below(4 * i + 3, 100));
    items.push_back({bytes, first, std::min(first + length, steps - 1)});
  }
  return items;
}

TEST(IntervalPacking, NeverOverlapsAndStaysNearTheBound) {
  double worst = 1, sum = 0;
  constexpr int kInstances = 60;
  for (int i = 0; i < kInstances; ++i) {
    const auto items = random_items(static_cast<uint64_t>(i), 40 + 4 * i, 60);
    const Packing packing = pack_intervals(items, 64);
    expect_no_overlap(items, packing, 64);
    const int64_t peak = peak_live_bytes(items, 64);
    EXPECT_EQ(peak, peak_by_counting(items, 64));
    ASSERT_GE(packing.bytes, peak);
    const double ratio = static_cast<double>(packing.bytes) / static_cast<double>(peak);
    worst = std::max(worst, ratio);
    sum += ratio;
  }
  RecordProperty("worst_percent", static_cast<int>(100 * worst));
  EXPECT_LE(sum / kInstances, 1.02);
  EXPECT_LE(worst, 1.05);
}

TEST(IntervalPacking, NestedLivesNeedNoMoreThanTheirPeak) {
  // As in a pass: what is made first is freed last.
  std::vector<LiveItem> items;
  for (int64_t i = 0; i < 50; ++i) items.push_back({64 * (1 + i % 7), i, 100 - i});
  EXPECT_EQ(pack_intervals(items, 64).bytes, peak_live_bytes(items, 64));
}

TEST(IntervalPacking, ReusesSpaceThatIsFree) {
  const std::vector<LiveItem> items = {{128, 0, 1}, {128, 2, 3}, {64, 1, 2}};
  const Packing packing = pack_intervals(items, 64);
  EXPECT_EQ(packing.bytes, 192);
  EXPECT_EQ(packing.offsets[0], packing.offsets[1]);
}

TEST(IntervalPacking, BothEndsOfALifeCount) {
  EXPECT_EQ(pack_intervals({{64, 0, 1}, {64, 1, 2}}, 64).bytes, 128);
  EXPECT_EQ(peak_live_bytes({{64, 0, 1}, {64, 1, 2}}, 64), 128);
  EXPECT_EQ(peak_live_bytes({{64, 0, 1}, {64, 2, 2}}, 64), 64);
}

TEST(IntervalPacking, EmptyItemsTakeNothing) {
  EXPECT_EQ(pack_intervals({}, 64).bytes, 0);
  EXPECT_EQ(peak_live_bytes({}, 64), 0);
  const Packing packing = pack_intervals({{0, 0, 9}, {1, 0, 9}, {0, 0, 9}}, 64);
  EXPECT_EQ(packing.bytes, 64);
}

TEST(IntervalPacking, IsDeterministic) {
  const auto items = random_items(5, 200, 60);
  EXPECT_EQ(pack_intervals(items, 64).offsets, pack_intervals(items, 64).offsets);
}

}  // namespace
}  // namespace lazytrain
