#include "ops/gemm.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "ops/testing.h"

namespace lazytrain::ops {
namespace {

using testing::GuardedView;
using testing::Matrix;
using testing::random_matrix;
using testing::Rho;

struct Case {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, accumulate = false, bias = false;
  DType in = DType::kBF16, out = DType::kBF16;
  int threads = 2;
  DType b = DType::kI64;  // kI64: as `in`
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.m << "x" << c.n << "x" << c.k << (c.transpose_a ? " At" : "") << (c.transpose_b ? " Bt" : "")
             << (c.accumulate ? " add" : "") << (c.bias ? " bias" : "") << " " << name_of(c.in) << "->"
             << name_of(c.out) << " threads " << c.threads;
}

struct Operands {
  Matrix a, b, c, bias;
};

Matrix transposed(const Matrix& x) {
  Matrix y(x.cols, x.rows);
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.cols; ++c) y.at(c, r) = x.at(r, c);
  }
  return y;
}

DType b_dtype(const Case& c) { return c.b == DType::kI64 ? c.in : c.b; }

Operands random_operands(const Case& c) {
  return {random_matrix(c.m, c.k, 1, c.in), random_matrix(c.k, c.n, 2, b_dtype(c)),
          random_matrix(c.m, c.n, 3, c.out, 5), random_matrix(1, c.n, 4, c.in, 5)};
}

// Small integers: every sum is exact in fp32, so the result must be exact too.
Operands integer_operands(const Case& c) {
  Operands o = random_operands(c);
  for (Matrix* m : {&o.a, &o.b, &o.c, &o.bias}) {
    for (double& v : m->v) v = std::clamp(std::round(2 * v), -6.0, 6.0);
  }
  return o;
}

Matrix reference(const Case& c, const Operands& o) {
  Matrix result(c.m, c.n);
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t p = 0; p < c.k; ++p) {
      for (int64_t j = 0; j < c.n; ++j) result.at(i, j) += o.a.at(i, p) * o.b.at(p, j);
    }
    for (int64_t j = 0; j < c.n; ++j) {
      result.at(i, j) += (c.accumulate ? o.c.at(i, j) : 0) + (c.bias ? o.bias.at(0, j) : 0);
    }
  }
  return result;
}

Matrix run(const Case& c, const Operands& o, GemmStrategy strategy, ThreadPool& pool) {
  const Matrix stored_a = c.transpose_a ? transposed(o.a) : o.a;
  const Matrix stored_b = c.transpose_b ? transposed(o.b) : o.b;
  GuardedView a(c.in, stored_a.rows, stored_a.cols, 3), b(b_dtype(c), stored_b.rows, stored_b.cols, 5);
  GuardedView result(c.out, c.m, c.n, 7), bias(c.in, 1, c.n);
  a.write(stored_a);
  b.write(stored_b);
  bias.write(o.bias);
  if (c.accumulate) result.write(o.c);
  const GuardedView scratch(DType::kU8, 1,
                            gemm_scratch_bytes({c.m, c.n, c.k, c.in, b_dtype(c), c.out}, pool.threads(), strategy));
  const Gemm g{.a = a.view(),
               .transpose_a = c.transpose_a,
               .b = b.view(),
               .transpose_b = c.transpose_b,
               .c = result.view(),
               .accumulate = c.accumulate,
               .bias = c.bias ? bias.view() : TensorView{}};
  gemm(pool, {scratch.view().row<std::byte>(0), static_cast<size_t>(scratch.view().cols)}, g, strategy);
  EXPECT_TRUE(a.intact() && b.intact() && bias.intact()) << "an operand was written";
  EXPECT_TRUE(result.intact()) << "written outside of C";
  EXPECT_TRUE(scratch.intact()) << "written outside of the scratch";
  return result.read();
}

Matrix run(const Case& c, const Operands& o, GemmStrategy strategy) {
  ThreadPool pool(c.threads);
  return run(c, o, strategy, pool);
}

double bound(const Case& c) { return c.out == DType::kBF16 ? testing::kBf16Op : testing::kFp32Op; }

// Ragged and real widths, edges of tiles, few rows (1, 3, 16 and the first that is not: 17).
std::vector<Case> cases(DType in, DType out) {
  std::vector<Case> result;
  const int64_t shapes[][3] = {{1, 517, 72},  {3, 72, 896},  {16, 33, 600}, {17, 48, 33},
                               {257, 65, 72}, {72, 33, 257}, {5, 1, 3},     {40, 896, 1}};
  for (const auto& [m, n, k] : shapes) {
    for (int flags = 0; flags < 16; ++flags) {
      result.push_back({m, n, k, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, (flags & 8) != 0, in, out,
                        1 + static_cast<int>((m + flags) % 3)});
    }
  }
  return result;
}

class GemmTest : public ::testing::TestWithParam<GemmStrategy> {
 protected:
  void SetUp() override {
    if (GetParam() == GemmStrategy::kNative && !native_bf16_supported()) {
      GTEST_SKIP() << "this CPU has no bf16 instructions: oneDNN would emulate them, and kNative is never chosen";
    }
  }
};

TEST_P(GemmTest, MatchesFp64) {
  for (const auto& [in, out] : {std::pair{DType::kBF16, DType::kBF16}, std::pair{DType::kBF16, DType::kF32},
                                std::pair{DType::kF32, DType::kF32}, std::pair{DType::kF32, DType::kBF16}}) {
    if (in == DType::kF32 && GetParam() == GemmStrategy::kNative) continue;  // the same code as kWiden
    Operands o;
    for (const Case& c : cases(in, out)) {
      SCOPED_TRACE(::testing::PrintToString(c));
      if (o.a.rows != c.m || o.a.cols != c.k || o.b.cols != c.n) o = random_operands(c);
      EXPECT_THAT(run(c, o, GetParam()).v, Rho(reference(c, o).v, bound(c)));
    }
  }
}

// One rounding: the bf16 result is the rounded exact sum, also behind the old C and the bias.
TEST_P(GemmTest, IntegersAreExactAcrossBlocks) {
  for (const Case& c : {Case{1040, 24, 70, false, true, true, true, DType::kBF16, DType::kBF16, 1},
                        Case{33, 600, 1100, true, false, true, false, DType::kBF16, DType::kBF16, 1},
                        Case{1100, 40, 530, false, false, false, true, DType::kBF16, DType::kF32, 1},
                        Case{600, 520, 70, true, true, true, true, DType::kF32, DType::kF32, 4},
                        Case{1040, 520, 30, false, false, true, false, DType::kBF16, DType::kBF16, 1},
                        Case{8, 600, 4200, false, true, true, true, DType::kBF16, DType::kBF16, 1}}) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const Operands o = integer_operands(c);
    Matrix expected = reference(c, o);
    for (double& v : expected.v) v = testing::stored(v, c.out);
    EXPECT_EQ(run(c, o, GetParam()).v, expected.v);
  }
}

TEST_P(GemmTest, EmptySumGivesTheStart) {
  const Case c{4, 5, 0, false, false, true, true, DType::kF32, DType::kF32};
  const Operands o = random_operands(c);
  EXPECT_THAT(run(c, o, GetParam()).v, Rho(reference(c, o).v, testing::kFp32Op));
}

// Same shapes and thread count, same bits: again, and while another caller keeps the pool busy.
TEST_P(GemmTest, SameBitsWhateverElseRuns) {
  const Case shapes[] = {{257, 517, 896, false, true, false, true},
                         {896, 72, 257, true, false, true, false, DType::kBF16, DType::kF32},
                         {300, 300, 1300, false, false, true, false, DType::kF32, DType::kF32}};
  ThreadPool pool(3);
  for (const Case& c : shapes) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const Operands o = random_operands(c);
    const Matrix quiet = run(c, o, GetParam(), pool);
    std::atomic<bool> stop{false};
    std::atomic<int64_t> parts{0};
    std::thread other([&] {
      while (!stop) {
        pool.run(5, [&](int64_t) {
          for (int i = 0; i < 2000; ++i) parts.fetch_add(1, std::memory_order_relaxed);
        });
      }
    });
    while (parts == 0) std::this_thread::yield();  // on a busy machine it begins late
    for (int i = 0; i < 5; ++i) EXPECT_EQ(run(c, o, GetParam(), pool).v, quiet.v);
    stop = true;
    other.join();
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, GemmTest, ::testing::Values(GemmStrategy::kWiden, GemmStrategy::kNative),
                         [](const auto& test) { return test.param == GemmStrategy::kWiden ? "widen" : "native"; });

TEST(Gemm, StrategiesAgree) {
  if (!native_bf16_supported()) GTEST_SKIP() << "this CPU has no bf16 instructions";
  for (const Case& c :
       {Case{257, 896, 517, false, true}, Case{517, 72, 257, true, false, true, false, DType::kBF16, DType::kF32}}) {
    const Operands o = random_operands(c);
    EXPECT_THAT(run(c, o, GemmStrategy::kNative).v, Rho(run(c, o, GemmStrategy::kWiden).v, bound(c)));
  }
}

TEST(Gemm, WidensOneOperandAlone) {
  for (const bool bf16_a : {true, false}) {
    for (const int64_t m : {7, 90}) {
      Case c{m, 130, 2000, false, true, false, false, bf16_a ? DType::kBF16 : DType::kF32, DType::kF32};
      c.b = bf16_a ? DType::kF32 : DType::kBF16;
      const Operands o = random_operands(c);
      EXPECT_THAT(run(c, o, GemmStrategy::kWiden).v, Rho(reference(c, o).v, testing::kFp32Op));
    }
  }
}

TEST(Gemm, ScratchIsBounded) {
  for (const GemmStrategy strategy : {GemmStrategy::kWiden, GemmStrategy::kNative}) {
    const GemmSize huge{1 << 20, 1 << 20, 1 << 20};
    EXPECT_LE(gemm_scratch_bytes(huge, 1, strategy), 6 << 20);
    EXPECT_EQ(gemm_scratch_bytes(huge, 7, strategy), 7 * gemm_scratch_bytes(huge, 1, strategy));
    EXPECT_EQ(gemm_scratch_bytes({100, 100, 100, DType::kF32, DType::kF32, DType::kF32}, 2, strategy), 0);
  }
}

TEST(Gemm, RefusesShortScratch) {
  ThreadPool pool(2);
  GuardedView a(DType::kBF16, 40, 24), b(DType::kBF16, 24, 40), c(DType::kBF16, 40, 40);
  const Gemm g{.a = a.view(), .b = b.view(), .c = c.view()};
  const int64_t wanted = gemm_scratch_bytes({40, 40, 24}, 2, GemmStrategy::kWiden);
  const GuardedView scratch(DType::kU8, 1, wanted);
  auto* bytes = scratch.view().row<std::byte>(0);
  EXPECT_NO_THROW(gemm(pool, {bytes, static_cast<size_t>(wanted)}, g, GemmStrategy::kWiden));
  EXPECT_THROW(gemm(pool, {bytes, static_cast<size_t>(wanted - 1)}, g, GemmStrategy::kWiden), RunError);
  EXPECT_THROW(gemm_on_this_thread({bytes, 64}, g, GemmStrategy::kWiden), RunError);
}

}  // namespace
}  // namespace lazytrain::ops
