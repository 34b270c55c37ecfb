#include "base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace lazytrain {
namespace {

TEST(CounterRng, FollowsThePublishedGenerator) {
  // SplitMix64 started at 0 gives these as its first outputs.
  constexpr uint64_t kGamma = 0x9e3779b97f4a7c15ull;
  EXPECT_EQ(mix64(kGamma), 0xe220a8397b1dcdafull);
  EXPECT_EQ(mix64(2 * kGamma), 0x6e789e6aa1b965f4ull);
  EXPECT_EQ(mix64(3 * kGamma), 0x06c45d188009454full);
}

TEST(CounterRng, DependsOnSeedStreamAndIndexAlone) {
  const CounterRng a(1, 2), same(1, 2), seed(2, 2), stream(1, 3);
  const uint64_t late = a.bits(1'000'000'000'000);
  EXPECT_EQ(same.bits(1'000'000'000'000), late);
  std::set<uint64_t> values;
  for (uint64_t i = 0; i < 1000; ++i) {
    for (const auto& rng : {a, seed, stream}) values.insert(rng.bits(i));
  }
  EXPECT_EQ(values.size(), 3000u);
}

TEST(CounterRng, UniformFillsTheUnitInterval) {
  const CounterRng rng(7, 0);
  std::vector<int> buckets(16);
  constexpr int kCount = 160'000;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double v = rng.uniform(i);
    ASSERT_GE(v, 0.0);
    ASSERT_LT(v, 1.0);
    ++buckets[static_cast<size_t>(v * 16)];
  }
  double chi_squared = 0;
  for (const int n : buckets) chi_squared += std::pow(n - kCount / 16.0, 2) / (kCount / 16.0);
  EXPECT_LT(chi_squared, 45);  // 15 degrees of freedom: above in fewer than 1 of 10000 seeds
}

TEST(CounterRng, NormalHasItsMoments) {
  const CounterRng rng(11, 5);
  constexpr int kCount = 200'000;
  double sum = 0, squares = 0, fourth = 0, lagged = 0, previous = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double v = rng.normal(i);
    ASSERT_TRUE(std::isfinite(v));
    sum += v;
    squares += v * v;
    fourth += v * v * v * v;
    lagged += v * previous;
    previous = v;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.012);  // five standard errors
  EXPECT_NEAR(squares / kCount, 1, 0.016);
  EXPECT_NEAR(fourth / kCount, 3, 0.11);
  EXPECT_NEAR(lagged / kCount, 0, 0.012);
}

TEST(CounterRng, BelowStaysBelowAndIsEven) {
  const CounterRng rng(13, 0);
  std::vector<int> seen(7);
  for (uint64_t i = 0; i < 70'000; ++i) ++seen[rng.below(i, 7)];
  for (const int n : seen) EXPECT_NEAR(n, 10'000, 500);
  EXPECT_EQ(rng.below(0, 1), 0u);
  for (uint64_t i = 0; i < 100; ++i) ASSERT_LT(rng.below(i, ~uint64_t{0}), ~uint64_t{0});
}

}  // namespace
}  // namespace lazytrain
