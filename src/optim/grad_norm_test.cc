#include "optim/grad_norm.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "optim/each_target.h"

namespace lazytrain::optim {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_values(size_t n) {
  std::mt19937 random(static_cast<uint32_t>(n) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (auto& x : values) x = normal(random) * std::pow(10.0f, static_cast<float>(random() % 12) - 8.0f);
  return values;
}

std::vector<bf16> rounded(const std::vector<float>& values) {
  std::vector<bf16> out;
  for (const float x : values) out.push_back(to_bf16(x));
  return out;
}

// The documented order, written as plainly as it can be.
double sum_in_order(const std::vector<double>& values) {
  double total = 0.0;
  for (size_t block = 0; block < values.size(); block += 4096) {
    double sums[32] = {};
    const size_t end = std::min(values.size(), block + 4096);
    for (size_t i = block; i < end; ++i) sums[(i - block) % 32] += values[i] * values[i];
    for (const size_t half : {16u, 8u, 4u, 2u, 1u}) {
      for (size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
    }
    total += sums[0];
  }
  return total;
}

std::vector<double> as_double(const std::vector<float>& values) { return {values.begin(), values.end()}; }
std::vector<double> as_double(const std::vector<bf16>& values) {
  std::vector<double> out;
  for (const bf16 x : values) out.push_back(to_float(x));
  return out;
}

TEST(GradNorm, EveryInstructionSetAndThreadCountGivesTheSameBits) {
  std::vector<ThreadPool*> pools = {nullptr};
  ThreadPool one(1), two(2), five(5);
  for (ThreadPool* pool : {&one, &two, &five}) pools.push_back(pool);
  for (const size_t n : {0u, 1u, 31u, 32u, 33u, 4095u, 4096u, 4097u, 100'003u}) {
    const auto values = random_values(n);
    const auto halves = rounded(values);
    const double of_floats = sum_in_order(as_double(values));
    const double of_halves = sum_in_order(as_double(halves));
    const auto count = static_cast<int64_t>(n);
    for_each_target([&] {
      for (ThreadPool* pool : pools) {
        ASSERT_EQ(sum_of_squares(values.data(), count, pool).sum_of_squares, of_floats) << n;
        ASSERT_EQ(sum_of_squares(halves.data(), count, pool).sum_of_squares, of_halves) << n;
        std::vector<bf16> out(n);
        ASSERT_EQ(round_to_bf16_and_sum(values.data(), out.data(), count, pool).sum_of_squares, of_halves) << n;
        ASSERT_EQ(out, halves) << n;
      }
    });
  }
}

// More blocks than are kept at a time: the sum is that of the blocks, one after the other.
TEST(GradNorm, ManyBlocksAddUpInTheirOrder) {
  std::vector<float> values(static_cast<size_t>(2060 * kSumBlock + 17));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std::ldexp(1.0f + static_cast<float>(i % 97), -static_cast<int>(i % 11));
  double expected = 0;
  for (size_t at = 0; at < values.size(); at += static_cast<size_t>(kSumBlock)) {
    const auto count = std::min(kSumBlock, static_cast<int64_t>(values.size() - at));
    expected += sum_of_squares(values.data() + at, count, nullptr).sum_of_squares;
  }
  ThreadPool pool(3);
  EXPECT_EQ(sum_of_squares(values.data(), std::ssize(values), &pool).sum_of_squares, expected);
  EXPECT_EQ(sum_of_squares(values.data(), std::ssize(values), nullptr).sum_of_squares, expected);
}

TEST(GradNorm, UnalignedPiecesWork) {
  const auto values = random_values(501);
  const std::vector<float> tail(values.begin() + 1, values.end());
  EXPECT_EQ(sum_of_squares(values.data() + 1, 500, nullptr).sum_of_squares, sum_in_order(as_double(tail)));
}

// Ties, denormals, the largest floats (which round to infinity), infinities and NaNs with any payload.
TEST(GradNorm, RoundsAsToBf16OnEveryInstructionSet) {
  std::vector<float> values = {0.0f, -0.0f, 1e-45f, -1e-40f, kInf, -kInf, kNan, 3.4e38f, -3.4e38f, 1.0f};
  for (const uint32_t bits : {0x3f808000u, 0x3f818000u, 0x3f807fffu, 0x3f808001u, 0x7f800001u, 0xff80ffffu, 0xffffffffu,
                              0x7fffffffu, 0x7f7f7fffu, 0x7f7f8000u, 0x00008000u, 0x80018000u}) {
    values.push_back(std::bit_cast<float>(bits));
  }
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  const auto expected = rounded(values);
  for_each_target([&] {
    std::vector<bf16> out(values.size());
    round_to_bf16_and_sum(values.data(), out.data(), static_cast<int64_t>(values.size()), nullptr);
    EXPECT_EQ(out, expected);
  });
}

TEST(GradNorm, ReportsAnyNonFiniteValue) {
  for (const float bad : {kInf, -kInf, kNan}) {
    for (const size_t at : {0u, 40u, 5000u, 9999u}) {
      auto values = random_values(10'000);
      values[at] = bad;
      const auto halves = rounded(values);
      std::vector<bf16> out(values.size());
      EXPECT_FALSE(sum_of_squares(values.data(), 10'000, nullptr).finite);
      EXPECT_FALSE(sum_of_squares(halves.data(), 10'000, nullptr).finite);
      EXPECT_FALSE(round_to_bf16_and_sum(values.data(), out.data(), 10'000, nullptr).finite);
      EXPECT_EQ(first_nonfinite(values.data(), 10'000), static_cast<int64_t>(at));
      EXPECT_EQ(first_nonfinite(halves.data(), 10'000), static_cast<int64_t>(at));
    }
  }
  const auto values = random_values(10'000);
  EXPECT_TRUE(sum_of_squares(values.data(), 10'000, nullptr).finite);
  EXPECT_EQ(first_nonfinite(values.data(), 10'000), std::nullopt);
}

TEST(GradNorm, HoldsTheLargestAndSmallestFloats) {
  const std::vector<float> large(10'000, std::numeric_limits<float>::max());
  const GradientSum sum = sum_of_squares(large.data(), 10'000, nullptr);
  EXPECT_TRUE(sum.finite);
  EXPECT_NEAR(sum.norm() / (100.0 * static_cast<double>(large[0])), 1.0, 1e-12);
  const std::vector<float> small(10'000, 1e-45f);
  EXPECT_NEAR(sum_of_squares(small.data(), 10'000, nullptr).norm() / (100.0 * static_cast<double>(small[0])), 1.0,
              1e-12);
  // Finite as fp32, infinite as the bf16 that the optimizer would read.
  std::vector<bf16> out(10'000);
  EXPECT_FALSE(round_to_bf16_and_sum(large.data(), out.data(), 10'000, nullptr).finite);
}

// Where fp32 sums of squares would be infinite and the step lost, clipping goes on: the factor brings the gradient to
// the norm asked for.
TEST(GradNorm, ClipsGradientsWhoseSquaresOverflowFp32) {
  const std::vector<bf16> gradient(10'000, to_bf16(-3e30f));
  const float value = to_float(gradient[0]);
  ASSERT_TRUE(std::isinf(value * value));
  const GradientSum sum = sum_of_squares(gradient.data(), 10'000, nullptr);
  ASSERT_TRUE(sum.finite);
  const double factor = clip_factor(sum.norm(), 1.0);
  EXPECT_GT(static_cast<float>(factor), 0.0f);
  EXPECT_NEAR(100.0 * static_cast<double>(value * static_cast<float>(factor)), -1.0, 1e-6);
}

TEST(GradNorm, SumsAddAndKeepTheFlag) {
  GradientSum sum{9.0, true};
  sum += {16.0, true};
  EXPECT_EQ(sum.norm(), 5.0);
  EXPECT_TRUE(sum.finite);
  sum += {kInf, false};
  sum += {1.0, true};
  EXPECT_FALSE(sum.finite);
}

TEST(ClipFactor, ScalesDownOnly) {
  EXPECT_DOUBLE_EQ(clip_factor(2.0, 1.0), 1.0 / (2.0 + 1e-6));
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_factor(1.0, 1.0), 1.0 / (1.0 + 1e-6));
  EXPECT_EQ(clip_factor(0.0, 1.0), 1.0);
  EXPECT_EQ(clip_factor(100.0, 0.0), 1.0);
  EXPECT_EQ(clip_factor(100.0, -1.0), 1.0);
}

}  // namespace
}  // namespace lazytrain::optim
