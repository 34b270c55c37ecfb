// RMSNorm, SwiGLU and Add; rotary has a file of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/add.h"
#include "ops/rmsnorm.h"
#include "ops/swiglu.h"
#include "ops/testing.h"

namespace lazytrain::ops {
namespace {

using namespace lazytrain::ops::testing;
using ::testing::Not;

struct Size {
  int64_t tokens, width;
};
const std::vector<Size> kSizes = {{1, 1}, {3, 72}, {257, 896}, {40, 37}};  // one, small, real, ragged

double bound(DType dtype) { return dtype == DType::kF32 ? kFp32Op : kBf16Op; }

class RowOpTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, RowOpTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

Matrix sum(const Matrix& a, const Matrix& b) {
  Matrix result = a;
  for (size_t i = 0; i < result.v.size(); ++i) result.v[i] += b.v[i];
  return result;
}

Batch one_document(int64_t tokens) { return documents({tokens}); }

// ---- RMSNorm
// ----------------------------------------------------------------------------------------------------------

struct NormReference {
  Matrix out, rstd, dx, dw;

  NormReference(const Matrix& x, const Matrix& w, const Matrix& dy, double eps)
      : out(x.rows, x.cols), rstd(x.rows, 1), dx(x.rows, x.cols), dw(1, x.cols) {
    const auto width = static_cast<double>(x.cols);
    for (int64_t t = 0; t < x.rows; ++t) {
      double squares = 0, mean = 0;
      for (int64_t j = 0; j < x.cols; ++j) squares += x.at(t, j) * x.at(t, j);
      const double r = 1 / std::sqrt(squares / width + eps);
      rstd.at(t, 0) = r;
      for (int64_t j = 0; j < x.cols; ++j) {
        out.at(t, j) = w.v[static_cast<size_t>(j)] * x.at(t, j) * r;
        dw.v[static_cast<size_t>(j)] += dy.at(t, j) * x.at(t, j) * r;
        mean += w.v[static_cast<size_t>(j)] * dy.at(t, j) * x.at(t, j) * r / width;
      }
      for (int64_t j = 0; j < x.cols; ++j) {
        dx.at(t, j) = r * (w.v[static_cast<size_t>(j)] * dy.at(t, j) - x.at(t, j) * r * mean);
      }
    }
  }
};

struct GluReference {
  Matrix out, dgate, dup;

  GluReference(const Matrix& gate, const Matrix& up, const Matrix& dy) : out(gate), dgate(gate), dup(gate) {
    for (size_t i = 0; i < gate.v.size(); ++i) {
      const double g = gate.v[i], s = 1 / (1 + std::exp(-g));
      out.v[i] = g * s * up.v[i];
      dgate.v[i] = dy.v[i] * up.v[i] * s * (1 + g * (1 - s));
      dup.v[i] = dy.v[i] * g * s;
    }
  }
};

TEST_P(RowOpTest, RmsNormMatchesTheFormula) {
  for (const Size& size : kSizes) {
    SCOPED_TRACE(size.tokens * 10000 + size.width);
    const Matrix x = random_matrix(size.tokens, size.width, 1, GetParam(), 3),
                 dy = random_matrix(size.tokens, size.width, 2, GetParam());
    const Matrix w = random_matrix(1, size.width, 3, GetParam(), 0.5, 1);
    const NormReference expected(x, w, dy, 1e-6);
    const RmsNorm op(size.width, 1e-6f);
    OpRunner runner(op, GetParam(), one_document(size.tokens), {.threads = 3, .row_gap = 16});
    const auto out = runner.forward({x}, {w});
    EXPECT_THAT(out[0].v, Rho(expected.out.v, bound(GetParam())));
    EXPECT_THAT(out[1].v, Rho(expected.rstd.v, kFp32Op));
    const Gradients grads = runner.backward({x}, {w}, out, {dy, Matrix(size.tokens, 1)});
    EXPECT_THAT(grads.param[0].v, Rho(expected.dw.v, kFp32Op));
    if (size.width == 1) continue;  // dx of one element is 0 but for eps
    EXPECT_THAT(grads.in[0].v, Rho(expected.dx.v, bound(GetParam())));
  }
}

TEST_P(RowOpTest, EveryInstructionSetMatchesTheFormulas) {
  const Matrix a = random_matrix(9, 37, 1, GetParam()), b = random_matrix(9, 37, 2, GetParam());
  const Matrix dy = random_matrix(9, 37, 3, GetParam()), w = random_matrix(1, 37, 4, GetParam(), 0.5, 1);
  const NormReference norm(a, w, dy, 1e-6);
  const GluReference glu(a, b, dy);
  Matrix added = sum(a, b);
  for (double& v : added.v) v = stored(v, GetParam());
  const RmsNorm norm_op(37, 1e-6f);
  const SwiGlu glu_op(37);
  const Add add_op(37);
  for_each_target([&] {
    OpRunner norm_runner(norm_op, GetParam(), one_document(9)), glu_runner(glu_op, GetParam(), one_document(9));
    const auto out = norm_runner.forward({a}, {w});
    EXPECT_THAT(out[0].v, Rho(norm.out.v, bound(GetParam())));
    const Gradients norm_grads = norm_runner.backward({a}, {w}, out, {dy, Matrix(9, 1)});
    EXPECT_THAT(norm_grads.in[0].v, Rho(norm.dx.v, bound(GetParam())));
    EXPECT_THAT(norm_grads.param[0].v, Rho(norm.dw.v, kFp32Op));
    EXPECT_THAT(glu_runner.forward({a, b}, {})[0].v, Rho(glu.out.v, bound(GetParam())));
    const Gradients glu_grads = glu_runner.backward({a, b}, {}, {glu.out}, {dy});
    EXPECT_THAT(glu_grads.in[0].v, Rho(glu.dgate.v, bound(GetParam())));
    EXPECT_THAT(glu_grads.in[1].v, Rho(glu.dup.v, bound(GetParam())));
    EXPECT_EQ(OpRunner(add_op, GetParam(), one_document(9)).forward({a, b}, {})[0].v, added.v);
  });
}

TEST(RmsNormReference, GradientsAreTheDifferences) {
  const Matrix x = random_matrix(3, 7, 1, DType::kF32), dy = random_matrix(3, 7, 2, DType::kF32),
               w = random_matrix(1, 7, 3, DType::kF32, 0.5, 1);
  const NormReference expected(x, w, dy, 1e-2);
  const auto loss = [&](const Matrix& at_x, const Matrix& at_w) {
    return dot(NormReference(at_x, at_w, dy, 1e-2).out.v, dy.v);
  };
  const auto dx = central_difference(x.v, [&](const std::vector<double>& v) {
    Matrix m = x;
    m.v = v;
    return loss(m, w);
  });
  const auto dw = central_difference(w.v, [&](const std::vector<double>& v) {
    Matrix m = w;
    m.v = v;
    return loss(x, m);
  });
  EXPECT_THAT(dx, Rho(expected.dx.v, kFp64Difference));
  EXPECT_THAT(dw, Rho(expected.dw.v, kFp64Difference));
}

// The order of casts: the normalised value is rounded, then the product. One rounding at the end gives other bits.
TEST(RmsNorm, RoundsTwice) {
  const Matrix x = random_matrix(16, 512, 1, DType::kBF16), w = random_matrix(1, 512, 2, DType::kBF16, 0.5, 1);
  const RmsNorm op(512, 1e-6f);
  const auto out = OpRunner(op, DType::kBF16, one_document(16)).forward({x}, {w});
  int64_t twice = 0, once = 0;
  for (int64_t t = 0; t < 16; ++t) {
    for (int64_t j = 0; j < 512; ++j) {
      const double normal = x.at(t, j) * out[1].at(t, 0), weight = w.v[static_cast<size_t>(j)];
      twice += out[0].at(t, j) == stored(stored(normal, DType::kBF16) * weight, DType::kBF16);
      once += out[0].at(t, j) == stored(normal * weight, DType::kBF16);
    }
  }
  EXPECT_GE(twice, 16 * 512 - 2);  // a tie of the fp32 product may fall the other way
  EXPECT_LT(once, 16 * 512 * 9 / 10);
}

// eps counts where the rows are small, and the weight is w, not 1 + w.
TEST(RmsNorm, TheTestsSeeWrongEpsAndWeight) {
  const Matrix x = random_matrix(5, 64, 1, DType::kF32, 2e-3), w = random_matrix(1, 64, 2, DType::kF32, 0.5, 1), dy = x;
  const RmsNorm op(64, 1e-5f);
  const auto out = OpRunner(op, DType::kF32, one_document(5)).forward({x}, {w});
  EXPECT_THAT(out[0].v, Rho(NormReference(x, w, dy, 1e-5).out.v, kFp32Op));
  EXPECT_THAT(out[0].v, Not(Rho(NormReference(x, w, dy, 1e-6).out.v, 5 * kBf16Op)));
  EXPECT_THAT(out[0].v, Not(Rho(NormReference(x, sum(w, Matrix(1, 64, 1.0)), dy, 1e-5).out.v, 5 * kBf16Op)));
}

TEST_P(RowOpTest, RmsNormAddsWhereAskedAndDoesNotDependOnThreads) {
  const Matrix x = random_matrix(150, 40, 1, GetParam()), dy = random_matrix(150, 40, 2, GetParam()),
               w = random_matrix(1, 40, 3, GetParam(), 0.5, 1);
  const RmsNorm op(40, 1e-6f);
  OpRunner one(op, GetParam(), one_document(150)), three(op, GetParam(), one_document(150), {.threads = 3});
  const auto out = one.forward({x}, {w});
  const Gradients plain = one.backward({x}, {w}, out, {dy, Matrix(150, 1)});
  const Gradients other = three.backward({x}, {w}, out, {dy, Matrix(150, 1)});
  EXPECT_EQ(other.param[0].v, plain.param[0].v);
  EXPECT_EQ(other.in[0].v, plain.in[0].v);
  const Matrix before_x = random_matrix(150, 40, 4, GetParam()), before_w = random_matrix(1, 40, 5, DType::kF32);
  const Gradients added =
      one.backward({x}, {w}, out, {dy, Matrix(150, 1)}, {.in = {{0, before_x}}, .param = {{0, before_w}}});
  EXPECT_THAT(added.in[0].v, Rho(sum(plain.in[0], before_x).v, bound(GetParam())));
  EXPECT_THAT(added.param[0].v, Rho(sum(plain.param[0], before_w).v, kFp32Op));
}

// ---- SwiGLU
// -----------------------------------------------------------------------------------------------------------

TEST_P(RowOpTest, SwiGluMatchesTheFormula) {
  for (const Size& size : kSizes) {
    SCOPED_TRACE(size.tokens * 10000 + size.width);
    const Matrix gate = random_matrix(size.tokens, size.width, 1, GetParam(), 3),
                 up = random_matrix(size.tokens, size.width, 2, GetParam());
    const Matrix dy = random_matrix(size.tokens, size.width, 3, GetParam());
    const GluReference expected(gate, up, dy);
    const SwiGlu op(size.width);
    OpRunner runner(op, GetParam(), one_document(size.tokens), {.threads = 2, .row_gap = 16});
    const auto out = runner.forward({gate, up}, {});
    EXPECT_THAT(out[0].v, Rho(expected.out.v, bound(GetParam())));
    const Gradients grads = runner.backward({gate, up}, {}, out, {dy});
    EXPECT_THAT(grads.in[0].v, Rho(expected.dgate.v, bound(GetParam())));
    EXPECT_THAT(grads.in[1].v, Rho(expected.dup.v, bound(GetParam())));
    const Gradients added = runner.backward({gate, up}, {}, out, {dy}, {.in = {{1, up}}, .param = {}});
    EXPECT_EQ(added.in[0].v, grads.in[0].v);
    EXPECT_THAT(added.in[1].v, Rho(sum(expected.dup, up).v, bound(GetParam())));
  }
}

TEST(SwiGluReference, GradientsAreTheDifferences) {
  const Matrix gate = random_matrix(2, 5, 1, DType::kF32), up = random_matrix(2, 5, 2, DType::kF32),
               dy = random_matrix(2, 5, 3, DType::kF32);
  const GluReference expected(gate, up, dy);
  const auto with = [&](const Matrix& like, const std::vector<double>& v) {
    Matrix m = like;
    m.v = v;
    return m;
  };
  EXPECT_THAT(
      central_difference(
          gate.v, [&](const std::vector<double>& v) { return dot(GluReference(with(gate, v), up, dy).out.v, dy.v); }),
      Rho(expected.dgate.v, kFp64Difference));
  EXPECT_THAT(
      central_difference(
          up.v, [&](const std::vector<double>& v) { return dot(GluReference(gate, with(up, v), dy).out.v, dy.v); }),
      Rho(expected.dup.v, kFp64Difference));
}

// Across the whole range of gates, element by element: the exponential neither overflows nor loses its small end.
TEST(SwiGlu, EveryGateIsWithinRounding) {
  const int64_t count = 4001;
  Matrix gate(1, count), up(1, count, 1.0), dy(1, count, 1.0);
  for (int64_t i = 0; i < count; ++i)
    gate.v[static_cast<size_t>(i)] = stored(static_cast<double>(i - 2000) / 10, DType::kF32);
  const SwiGlu op(count);
  OpRunner runner(op, DType::kF32, one_document(1));
  const auto out = runner.forward({gate, up}, {});
  const Gradients grads = runner.backward({gate, up}, {}, out, {dy});
  const GluReference expected(gate, up, dy);
  for (size_t i = 0; i < gate.v.size(); ++i) {
    const double tolerance = 1e-6 * std::abs(expected.out.v[i]) + 1e-34;  // beyond -87 the truth is below 1e-36
    EXPECT_NEAR(out[0].v[i], expected.out.v[i], tolerance) << gate.v[i];
    EXPECT_NEAR(grads.in[0].v[i], expected.dgate.v[i], 1e-6) << gate.v[i];
  }
}

TEST_P(RowOpTest, SwiGluKeepsNan) {
  Matrix gate(1, 3, 1.0), up(1, 3, 1.0);
  gate.v[1] = NAN;
  const SwiGlu op(3);
  const auto out = OpRunner(op, GetParam(), one_document(1)).forward({gate, up}, {});
  EXPECT_FALSE(std::isnan(out[0].v[0]));
  EXPECT_TRUE(std::isnan(out[0].v[1]));
}

// ---- Add
// --------------------------------------------------------------------------------------------------------------

TEST_P(RowOpTest, AddAddsAndPassesTheGradient) {
  for (const Size& size : kSizes) {
    const Matrix a = random_matrix(size.tokens, size.width, 1, GetParam()),
                 b = random_matrix(size.tokens, size.width, 2, GetParam());
    const Matrix dy = random_matrix(size.tokens, size.width, 3, GetParam());
    const Add op(size.width);
    EXPECT_TRUE(op.passes_gradient_through());
    OpRunner runner(op, GetParam(), one_document(size.tokens), {.threads = 2, .row_gap = 16});
    Matrix expected = sum(a, b);
    for (double& v : expected.v) v = stored(v, GetParam());
    EXPECT_EQ(runner.forward({a, b}, {})[0].v, expected.v);
    const Gradients grads = runner.backward({a, b}, {}, {}, {dy}, {.in = {{1, b}}, .param = {}});
    EXPECT_EQ(grads.in[0].v, dy.v);
    Matrix added = sum(b, dy);
    for (double& v : added.v) v = stored(v, GetParam());
    EXPECT_EQ(grads.in[1].v, added.v);
  }
}

}  // namespace
}  // namespace lazytrain::ops
