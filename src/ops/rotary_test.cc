#include "ops/rotary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/testing.h"

namespace lazytrain::ops {
namespace {

using namespace lazytrain::ops::testing;
using ::testing::Not;

enum class Mutation { kNone, kInterleaved, kInverse, kByRow };

std::vector<float> frequencies(int64_t rotated, double theta) {
  std::vector<float> result;
  for (int64_t j = 0; j < rotated / 2; ++j) {
    result.push_back(static_cast<float>(std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(rotated))));
  }
  return result;
}

Matrix reference(const Matrix& x, int64_t heads, const std::vector<float>& inv_freq, double scaling,
                 const std::vector<int32_t>& positions, Mutation mutation = Mutation::kNone) {
  Matrix y = x;
  const int64_t d = x.cols / heads, half = static_cast<int64_t>(inv_freq.size());
  for (int64_t t = 0; t < x.rows; ++t) {
    const auto position = static_cast<float>(mutation == Mutation::kByRow ? t : positions[static_cast<size_t>(t)]);
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t j = 0; j < half; ++j) {
        const float angle = position * inv_freq[static_cast<size_t>(j)];  // in fp32, as the models do
        const double c = std::cos(static_cast<double>(angle)) * scaling;
        const double s = std::sin(static_cast<double>(angle)) * (mutation == Mutation::kInverse ? -scaling : scaling);
        const int64_t low = h * d + (mutation == Mutation::kInterleaved ? 2 * j : j);
        const int64_t high = mutation == Mutation::kInterleaved ? low + 1 : low + half;
        y.at(t, low) = x.at(t, low) * c - x.at(t, high) * s;
        y.at(t, high) = x.at(t, high) * c + x.at(t, low) * s;
      }
    }
  }
  return y;
}

struct Case {
  int64_t heads, head_dim, rotated;
  double theta, scaling;
};
const std::vector<Case> kCases = {{1, 4, 4, 1e4, 1},      {3, 12, 12, 1e4, 1},   {14, 64, 64, 1e6, 1},
                                  {2, 80, 80, 1e4, 1.25}, {2, 128, 128, 1e6, 1}, {1, 256, 256, 1e7, 1},
                                  {2, 256, 64, 1e7, 1}};

class RotaryTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, RotaryTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

double bound(DType dtype) { return dtype == DType::kF32 ? kFp32Op : kBf16Op; }

TEST_P(RotaryTest, MatchesTheFormula) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.head_dim);
    Batch batch = documents({1, 3, 70, 1});
    batch.positions.back() = 131071;  // generation far into a long document
    batch.positions.front() = 65537;
    const Matrix x = random_matrix(batch.count(), c.heads * c.head_dim, 1, GetParam());
    const auto inv_freq = frequencies(c.rotated, c.theta);
    const Rotary op(c.heads, c.head_dim, inv_freq, static_cast<float>(c.scaling));
    OpRunner runner(op, GetParam(), batch, {.threads = 3, .row_gap = 16});
    const auto out = runner.forward({x}, {});
    EXPECT_THAT(out[0].v, Rho(reference(x, c.heads, inv_freq, c.scaling, batch.positions).v, bound(GetParam())));
  }
}

TEST_P(RotaryTest, EveryInstructionSetMatchesTheFormula) {
  Batch batch = documents({3, 40});
  batch.positions.back() = 131071;
  const Matrix x = random_matrix(batch.count(), 3 * 28, 1, GetParam());
  const auto inv_freq = frequencies(22, 1e6);  // 11 pairs and 6 dimensions that pass
  const Rotary op(3, 28, inv_freq, 1);
  const Matrix expected = reference(x, 3, inv_freq, 1, batch.positions);
  for_each_target(
      [&] { EXPECT_THAT(OpRunner(op, GetParam(), batch).forward({x}, {})[0].v, Rho(expected.v, bound(GetParam()))); });
}

// The map is linear and its gradient the transpose: the inverse rotation, scaled alike.
TEST_P(RotaryTest, BackwardIsTheTranspose) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.head_dim);
    const Batch batch = documents({5, 2});
    const Matrix x = random_matrix(7, c.heads * c.head_dim, 1, GetParam()),
                 dy = random_matrix(7, c.heads * c.head_dim, 2, GetParam());
    const auto inv_freq = frequencies(c.rotated, c.theta);
    const Rotary op(c.heads, c.head_dim, inv_freq, static_cast<float>(c.scaling));
    OpRunner runner(op, GetParam(), batch);
    const Gradients grads = runner.backward({x}, {}, {}, {dy});
    const Matrix expected = reference(dy, c.heads, inv_freq, c.scaling, batch.positions, Mutation::kInverse);
    EXPECT_THAT(grads.in[0].v, Rho(expected.v, bound(GetParam())));
    const Gradients added = runner.backward({x}, {}, {}, {dy}, {.in = {{0, x}}, .param = {}});
    Matrix sum = expected;
    for (size_t i = 0; i < sum.v.size(); ++i) sum.v[i] += x.v[i];
    EXPECT_THAT(added.in[0].v, Rho(sum.v, bound(GetParam())));
  }
}

TEST(RotaryReference, InverseIsTheDifference) {
  const Batch batch = documents({5, 2});
  const Matrix x = random_matrix(7, 24, 1, DType::kF32), dy = random_matrix(7, 24, 2, DType::kF32);
  const auto inv_freq = frequencies(8, 1e4);
  // Linear in x: a wide step costs nothing and keeps the digits.
  const auto difference = central_difference(
      x.v,
      [&](const std::vector<double>& v) {
        Matrix m = x;
        m.v = v;
        return dot(reference(m, 2, inv_freq, 1.25, batch.positions).v, dy.v);
      },
      1e-3);
  EXPECT_THAT(difference,
              Rho(reference(dy, 2, inv_freq, 1.25, batch.positions, Mutation::kInverse).v, kFp64Difference));
}

TEST_P(RotaryTest, TheTestsSeeEveryMutation) {
  const Batch batch = documents({4, 20});
  const Matrix x = random_matrix(24, 32, 1, GetParam());
  const auto inv_freq = frequencies(16, 1e4);
  const Rotary op(2, 16, inv_freq, 1);
  const auto out = OpRunner(op, GetParam(), batch).forward({x}, {});
  for (const Mutation m : {Mutation::kInterleaved, Mutation::kInverse, Mutation::kByRow}) {
    EXPECT_THAT(out[0].v, Not(Rho(reference(x, 2, inv_freq, 1, batch.positions, m).v, 5 * kBf16Op)))
        << static_cast<int>(m);
  }
  EXPECT_THAT(out[0].v, Not(Rho(reference(x, 2, frequencies(16, 1e6), 1, batch.positions).v, 5 * kBf16Op)));
}

TEST(Rotary, RefusesFrequenciesThatDoNotFit) {
  EXPECT_THROW(Rotary(1, 16, frequencies(18, 1e4), 1), UsageError);
  EXPECT_THROW(Rotary(1, 16, {}, 1), UsageError);
}

}  // namespace
}  // namespace lazytrain::ops
