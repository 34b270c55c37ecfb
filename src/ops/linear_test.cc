#include "ops/linear.h"

#include <gtest/gtest.h>

#include "ops/testing.h"

namespace lazytrain::ops {
namespace {

using testing::documents;
using testing::Gradients;
using testing::Matrix;
using testing::OpRunner;
using testing::random_matrix;
using testing::Rho;

struct Data {
  Matrix x, w, b, dy;
  std::vector<Matrix> params(bool bias) const { return bias ? std::vector<Matrix>{w, b} : std::vector<Matrix>{w}; }
};

Data data(int64_t tokens, int64_t in, int64_t out, DType type) {
  return {random_matrix(tokens, in, 1, type), random_matrix(out, in, 2, type, 0.1), random_matrix(1, out, 3, type, 2),
          random_matrix(tokens, out, 4, type)};
}

Matrix forward_reference(const Data& d, bool bias) {
  Matrix y(d.x.rows, d.w.rows);
  for (int64_t t = 0; t < y.rows; ++t) {
    for (int64_t o = 0; o < y.cols; ++o) {
      y.at(t, o) = bias ? d.b.at(0, o) : 0;
      for (int64_t i = 0; i < d.x.cols; ++i) y.at(t, o) += d.x.at(t, i) * d.w.at(o, i);
    }
  }
  return y;
}

struct Expected {
  Matrix dx, dw, db;
};

Expected backward_reference(const Data& d) {
  Expected e{Matrix(d.x.rows, d.x.cols), Matrix(d.w.rows, d.w.cols), Matrix(1, d.w.rows)};
  for (int64_t t = 0; t < d.x.rows; ++t) {
    for (int64_t o = 0; o < d.w.rows; ++o) {
      const double dy = d.dy.at(t, o);
      e.db.at(0, o) += dy;
      for (int64_t i = 0; i < d.x.cols; ++i) {
        e.dx.at(t, i) += dy * d.w.at(o, i);
        e.dw.at(o, i) += dy * d.x.at(t, i);
      }
    }
  }
  return e;
}

Matrix sum(const Matrix& a, const Matrix& b) {
  Matrix c = a;
  for (size_t i = 0; i < c.v.size(); ++i) c.v[i] += b.v[i];
  return c;
}

double bound(DType type) { return type == DType::kBF16 ? testing::kBf16Op : testing::kFp32Op; }

struct Case {
  int64_t tokens, in, out;
  bool bias;
};
constexpr Case kCases[] = {{1, 72, 517, true}, {3, 896, 72, false}, {257, 72, 128, true}, {257, 896, 72, true}};

class LinearTest : public ::testing::TestWithParam<std::pair<DType, GemmStrategy>> {
 protected:
  void SetUp() override {
    if (GetParam().second == GemmStrategy::kNative && !native_bf16_supported()) {
      GTEST_SKIP() << "this CPU has no bf16 instructions";
    }
  }
};

TEST_P(LinearTest, MatchesFp64) {
  const auto [type, strategy] = GetParam();
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::PrintToString(c.tokens) + " " + ::testing::PrintToString(c.in));
    const Linear op(c.in, c.out, c.bias, strategy);
    const Data d = data(c.tokens, c.in, c.out, type);
    OpRunner runner(op, type, documents({c.tokens}), {.threads = 2, .row_gap = 5});
    EXPECT_THAT(runner.forward({d.x}, d.params(c.bias))[0].v, Rho(forward_reference(d, c.bias).v, bound(type)));

    const Gradients got = runner.backward({d.x}, d.params(c.bias), {}, {d.dy});
    const Expected e = backward_reference(d);
    EXPECT_THAT(got.in[0].v, Rho(e.dx.v, bound(type)));
    EXPECT_THAT(got.param[0].v, Rho(e.dw.v, testing::kFp32Op));
    if (c.bias) {
      EXPECT_THAT(got.param[1].v, Rho(e.db.v, testing::kFp32Op));
    }
  }
}

TEST_P(LinearTest, AddsWhereAsked) {
  const auto [type, strategy] = GetParam();
  const Linear op(72, 517, true, strategy);
  const Data d = data(33, 72, 517, type);
  const Matrix dx0 = random_matrix(33, 72, 7, type, 3), dw0 = random_matrix(517, 72, 8, DType::kF32, 3);
  const Matrix db0 = random_matrix(1, 517, 9, DType::kF32, 3);
  OpRunner runner(op, type, documents({20, 13}), {.threads = 3});
  const Gradients got =
      runner.backward({d.x}, d.params(true), {}, {d.dy}, {.in = {{0, dx0}}, .param = {{0, dw0}, {1, db0}}});
  const Expected e = backward_reference(d);
  EXPECT_THAT(got.in[0].v, Rho(sum(e.dx, dx0).v, bound(type)));
  EXPECT_THAT(got.param[0].v, Rho(sum(e.dw, dw0).v, testing::kFp32Op));
  EXPECT_THAT(got.param[1].v, Rho(sum(e.db, db0).v, testing::kFp32Op));
}

INSTANTIATE_TEST_SUITE_P(Computes, LinearTest,
                         ::testing::Values(std::pair{DType::kF32, GemmStrategy::kWiden},
                                           std::pair{DType::kBF16, GemmStrategy::kWiden},
                                           std::pair{DType::kBF16, GemmStrategy::kNative}),
                         [](const auto& test) {
                           if (test.param.first == DType::kF32) return "fp32";
                           return test.param.second == GemmStrategy::kWiden ? "bf16_widen" : "bf16_native";
                         });

// The references themselves against central differences of sum(dy * y).
TEST(Linear, ReferenceMatchesDifferences) {
  const Data d = data(3, 5, 4, DType::kF32);
  const Expected e = backward_reference(d);
  const auto objective = [&](const Data& at) { return testing::dot(forward_reference(at, true).v, d.dy.v); };
  const auto difference = [&](Matrix Data::*member) {
    return testing::central_difference((d.*member).v, [&](const std::vector<double>& v) {
      Data moved = d;
      (moved.*member).v = v;
      return objective(moved);
    });
  };
  EXPECT_THAT(e.dx.v, Rho(difference(&Data::x), testing::kFp64Difference));
  EXPECT_THAT(e.dw.v, Rho(difference(&Data::w), testing::kFp64Difference));
  EXPECT_THAT(e.db.v, Rho(difference(&Data::b), testing::kFp64Difference));
}

TEST(Linear, DeclaresItself) {
  const Linear op(72, 517, true);
  EXPECT_EQ(op.outputs()[0].width, 517);
  ASSERT_EQ(op.parameters().size(), 2u);
  EXPECT_EQ(op.parameters()[0].shape, (std::vector<int64_t>{517, 72}));
  EXPECT_EQ(op.parameters()[1].shape, (std::vector<int64_t>{517}));
  EXPECT_EQ(op.parameters()[1].init, graph::Init::kZeros);
  EXPECT_EQ(Linear(72, 517, false).parameters().size(), 1u);
  EXPECT_EQ(op.forward_work({.tokens = 10}).flops, 2.0 * 10 * 72 * 517);
  EXPECT_EQ(Linear(72, 517, false).backward_work({.tokens = 10}).flops, 4.0 * 10 * 72 * 517);
}

}  // namespace
}  // namespace lazytrain::ops
