// The vector kernels on every instruction set that this CPU has, not only on the best one.
#include "ops/gemm_simd.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cmath>

#include "ops/lm_head_simd.h"
#include "ops/testing.h"

namespace lazytrain::ops {
namespace {

using testing::random_matrix;
using testing::Rho;

class SimdTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { choose(GetParam()); }
  void TearDown() override { choose(0); }

 private:
  static void choose(int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

std::vector<float> floats(const testing::Matrix& m) { return {m.v.begin(), m.v.end()}; }
std::vector<bf16> halves(const testing::Matrix& m) {
  std::vector<bf16> result;
  for (const double v : m.v) result.push_back(to_bf16(static_cast<float>(v)));
  return result;
}

// Every bf16, against the definition: the upper half of a float.
TEST_P(SimdTest, WidensExactly) {
  std::vector<bf16> all(65536);
  for (uint32_t i = 0; i < 65536; ++i) all[i] = {static_cast<uint16_t>(i)};
  for (const int64_t cols : {256, 251, 3}) {
    std::vector<float> wide(255 * 256 + 1, 7.0f);
    simd::widen(all.data(), 257, wide.data(), 256, 255, cols);
    for (int64_t r = 0; r < 255; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        ASSERT_EQ(std::bit_cast<uint32_t>(wide[static_cast<size_t>(r * 256 + c)]), static_cast<uint32_t>(r * 257 + c)
                                                                                       << 16);
      }
      if (cols < 256) {
        ASSERT_EQ(wide[static_cast<size_t>(r * 256 + cols)], 7.0f) << "written behind the row";
      }
    }
  }
}

// Values around every rounding boundary, against the scalar definition (base/dtype_test.cc tests that one).
TEST_P(SimdTest, RoundsLikeTheScalar) {
  for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
    std::vector<float> from(65536);
    for (uint32_t i = 0; i < 65536; ++i) from[i] = std::bit_cast<float>((i << 16) | low);
    std::vector<bf16> to(65536, bf16{0x1234});
    simd::round_to_bf16(from.data(), 65535, to.data(), 65535, 1, 65535);
    for (size_t i = 0; i < 65535; ++i) ASSERT_EQ(to[i].bits, to_bf16(from[i]).bits) << i << " " << low;
    EXPECT_EQ(to[65535].bits, 0x1234) << "written behind the row";
  }
}

TEST_P(SimdTest, FewRowsMatchFp64) {
  for (const int64_t m : {1, 2, 3, 7, 16}) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 3}, {9, 72}, {30, 577}}) {
      const testing::Matrix a = random_matrix(m, k, 1, DType::kBF16), b = random_matrix(n, k, 2, DType::kBF16);
      std::vector<double> expected;
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          expected.push_back(100);
          for (int64_t p = 0; p < k; ++p) expected.back() += a.at(i, p) * b.at(j, p);
        }
      }
      const std::vector<float> x = floats(a), y = floats(b);
      std::vector<float> c(static_cast<size_t>(m * n), 100.0f), d = c;
      simd::few_rows(m, n, k, x.data(), k, y.data(), k, c.data(), n, true);
      simd::few_rows(m, n, k, x.data(), k, halves(b).data(), k, d.data(), n, true);
      EXPECT_THAT(std::vector<double>(c.begin(), c.end()), Rho(expected, testing::kFp32Op)) << m << " " << n;
      EXPECT_EQ(c, d) << "bf16 weights are exact in fp32";
    }
  }
}

TEST_P(SimdTest, ColumnSumsMatchFp64) {
  const testing::Matrix x = random_matrix(300, 77, 1, DType::kBF16, 1, 3);
  for (const bool accumulate : {false, true}) {
    std::vector<double> expected(75, accumulate ? 5 : 0);
    for (int64_t r = 0; r < 300; ++r) {
      for (int64_t c = 0; c < 75; ++c) expected[static_cast<size_t>(c)] += x.at(r, c);
    }
    std::vector<float> sum(76, 5.0f), of_bf16 = sum;
    simd::column_sums(floats(x).data(), 77, 300, 75, sum.data(), accumulate);
    simd::column_sums(halves(x).data(), 77, 300, 75, of_bf16.data(), accumulate);
    EXPECT_EQ(sum, of_bf16);
    EXPECT_EQ(sum.back(), 5.0f) << "written behind the row";
    EXPECT_THAT(std::vector<double>(sum.begin(), sum.end() - 1), Rho(expected, testing::kFp32Op));
  }
}

// exp within 2 ulp of the double value on what a softmax asks for, and NaN stays NaN.
TEST_P(SimdTest, ExpIsWithinTwoUlps) {
  double worst = 0;
  for (int start = 0; start < 87000; start += 37) {
    std::vector<float> x(37);
    for (int i = 0; i < 37; ++i) x[static_cast<size_t>(i)] = -static_cast<float>(start + i) / 1000.0f;
    std::vector<float> y = x;
    simd::scaled_exp(y.data(), 37, 0.0f, 1.0f);
    for (size_t i = 0; i < 37; ++i) {
      const double exact = std::exp(static_cast<double>(x[i]));
      const auto rounded = static_cast<float>(exact);
      worst = std::max(worst, std::abs(static_cast<double>(y[i]) - exact) / (std::nextafter(rounded, 2.0f) - rounded));
    }
  }
  EXPECT_LE(worst, 2.0);
  EXPECT_GT(worst, 0.4) << "nothing was computed";
  std::vector<float> broken(37, -1.0f);
  broken[3] = broken[36] = NAN;
  simd::scaled_exp(broken.data(), 37, 0.0f, 1.0f);
  EXPECT_TRUE(std::isnan(broken[3]) && std::isnan(broken[36]) && !std::isnan(broken[4]));
}

TEST_P(SimdTest, StatsOfTilesMatchTheWhole) {
  const testing::Matrix x = random_matrix(1, 1000, 1, DType::kF32, 10);
  const double max = *std::max_element(x.v.begin(), x.v.end());
  double sum = 0;
  for (const double v : x.v) sum += std::exp(v - max);
  simd::RowStats stats{-INFINITY, 0};
  const std::vector<float> logits = floats(x);
  for (const auto& [begin, n] : {std::pair<int, int64_t>{0, 1}, {1, 600}, {601, 32}, {633, 367}}) {
    simd::add_to_stats(logits.data() + begin, n, stats);
  }
  EXPECT_EQ(stats.max, max);
  EXPECT_NEAR(stats.sum, sum, testing::kFp32Op * sum);
}

INSTANTIATE_TEST_SUITE_P(Targets, SimdTest, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& test) { return std::string(hwy::TargetName(test.param)); });

}  // namespace
}  // namespace lazytrain::ops
