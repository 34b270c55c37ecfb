#include "ops/lm_head_loss.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "ops/testing.h"

namespace lazytrain::ops {
namespace {

using testing::Batch;
using testing::documents;
using testing::Gradients;
using testing::GuardedView;
using testing::Matrix;
using testing::OpRunner;
using testing::random_matrix;
using testing::Rho;

struct Expected {
  double nll = 0;
  int64_t count = 0;
  Matrix dn, dw;
};

// Plain double: full logits, two passes.
Expected reference(const Matrix& n, const Matrix& w, const Batch& batch) {
  Expected e{0, 0, Matrix(n.rows, n.cols), Matrix(w.rows, w.cols)};
  for (int64_t t = 0; t < n.rows; ++t) {
    const int32_t target = batch.targets[static_cast<size_t>(t)];
    if (target < 0) continue;
    std::vector<double> logits(static_cast<size_t>(w.rows));
    for (int64_t v = 0; v < w.rows; ++v) {
      for (int64_t h = 0; h < n.cols; ++h) logits[static_cast<size_t>(v)] += n.at(t, h) * w.at(v, h);
    }
    const double max = *std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (const double l : logits) total += std::exp(l - max);
    e.nll += std::log(total) + max - logits[static_cast<size_t>(target)];
    ++e.count;
    for (int64_t v = 0; v < w.rows; ++v) {
      const double p = std::exp(logits[static_cast<size_t>(v)] - max) / total;
      const double d = (p - (v == target ? 1 : 0)) * batch.loss_scale;
      for (int64_t h = 0; h < n.cols; ++h) {
        e.dn.at(t, h) += d * w.at(v, h);
        e.dw.at(v, h) += d * n.at(t, h);
      }
    }
  }
  return e;
}

// Every third token does not count; targets include the first and the last id.
Batch batch_of(int64_t tokens, int64_t vocabulary) {
  Batch batch = documents({tokens});
  for (int64_t t = 0; t < tokens; ++t) {
    batch.targets[static_cast<size_t>(t)] = t % 3 == 1   ? -1
                                            : t % 7 == 0 ? static_cast<int32_t>(vocabulary - 1)
                                                         : static_cast<int32_t>(t * 31 % vocabulary);
  }
  batch.loss_scale = 1.0 / 300;
  return batch;
}

double bound(DType type) { return type == DType::kBF16 ? testing::kBf16Op : testing::kFp32Op; }

using Compute = std::pair<DType, GemmStrategy>;

class LmHeadLossTest : public ::testing::TestWithParam<Compute> {
 protected:
  void SetUp() override {
    if (GetParam().second == GemmStrategy::kNative && !native_bf16_supported()) {
      GTEST_SKIP() << "this CPU has no bf16 instructions";
    }
  }
  // dW is fp32, but its dlogits are bf16 where bf16 kernels read them.
  double weight_bound() const {
    return GetParam() == Compute{DType::kBF16, GemmStrategy::kNative} ? testing::kBf16Op : testing::kFp32Op;
  }
};

struct Case {
  int64_t tokens, hidden, vocabulary;
  int threads;
};

TEST_P(LmHeadLossTest, MatchesFp64) {
  const auto [type, strategy] = GetParam();
  // The last two: several tiles a thread, several chunks (more than 512 counted tokens).
  for (const Case& c : {Case{1, 72, 517, 2}, Case{3, 896, 517, 3}, Case{257, 72, 517, 2}, Case{5, 8, 7, 4},
                        Case{40, 72, 5000, 2}, Case{900, 16, 90, 2}}) {
    SCOPED_TRACE(::testing::PrintToString(c.tokens) + " x " + ::testing::PrintToString(c.vocabulary));
    const LmHeadLoss op(c.hidden, c.vocabulary, strategy);
    const Batch batch = batch_of(c.tokens, c.vocabulary);
    const Matrix n = random_matrix(c.tokens, c.hidden, 1, type);
    const Matrix w = random_matrix(c.vocabulary, c.hidden, 2, type, 2 / std::sqrt(static_cast<double>(c.hidden)));
    const Expected e = reference(n, w, batch);
    OpRunner runner(op, type, batch, {.threads = c.threads, .row_gap = 3});
    const Gradients got = runner.backward({n}, {w}, {}, {});
    EXPECT_NEAR(runner.loss().nll, e.nll, testing::kFp32Op * e.nll);
    EXPECT_EQ(runner.loss().count, e.count);
    EXPECT_THAT(got.in[0].v, Rho(e.dn.v, bound(type)));
    EXPECT_THAT(got.param[0].v, Rho(e.dw.v, weight_bound()));
    for (int64_t t = 1; t < c.tokens; t += 3) {
      for (int64_t h = 0; h < c.hidden; ++h) ASSERT_EQ(got.in[0].at(t, h), 0) << "token without target";
    }
    const double backward_nll = runner.loss().nll;
    runner.forward({n}, {w});
    EXPECT_EQ(runner.loss().nll, backward_nll) << "forward and backward must give the same loss";
    EXPECT_EQ(runner.loss().count, e.count);
  }
}

TEST_P(LmHeadLossTest, AddsWhereAsked) {
  const auto [type, strategy] = GetParam();
  const LmHeadLoss op(72, 517, strategy);
  const Batch batch = batch_of(20, 517);
  const Matrix n = random_matrix(20, 72, 1, type), w = random_matrix(517, 72, 2, type, 0.3);
  const Matrix dn0 = random_matrix(20, 72, 3, type, 0.1), dw0 = random_matrix(517, 72, 4, DType::kF32, 0.1);
  Expected e = reference(n, w, batch);
  for (size_t i = 0; i < e.dn.v.size(); ++i) e.dn.v[i] += dn0.v[i];
  for (size_t i = 0; i < e.dw.v.size(); ++i) e.dw.v[i] += dw0.v[i];
  OpRunner runner(op, type, batch, {.threads = 2});
  const Gradients got = runner.backward({n}, {w}, {}, {}, {.in = {{0, dn0}}, .param = {{0, dw0}}});
  EXPECT_THAT(got.in[0].v, Rho(e.dn.v, bound(type)));
  EXPECT_THAT(got.param[0].v, Rho(e.dw.v, weight_bound()));
  for (int64_t h = 0; h < 72; ++h) ASSERT_EQ(got.in[0].at(1, h), dn0.at(1, h)) << "token without target";
}

TEST_P(LmHeadLossTest, NothingCounted) {
  const auto [type, strategy] = GetParam();
  const LmHeadLoss op(72, 517, strategy);
  const Matrix n = random_matrix(9, 72, 1, type), w = random_matrix(517, 72, 2, type);
  OpRunner runner(op, type, documents({9}), {.threads = 2});
  Gradients got = runner.backward({n}, {w}, {}, {});
  EXPECT_EQ(runner.loss().nll, 0);
  EXPECT_EQ(runner.loss().count, 0);
  EXPECT_EQ(got.in[0].v, Matrix(9, 72).v);
  EXPECT_EQ(got.param[0].v, Matrix(517, 72).v);
  got = runner.backward({n}, {w}, {}, {}, {.in = {{0, n}}, .param = {{0, w}}});
  EXPECT_EQ(got.in[0].v, n.v) << "adding nothing must change nothing";
  EXPECT_EQ(got.param[0].v, w.v);
}

// Large logits do not overflow; a NaN reaches the loss instead of vanishing in exp.
TEST_P(LmHeadLossTest, ExtremeLogits) {
  const auto [type, strategy] = GetParam();
  const LmHeadLoss op(72, 517, strategy);
  Batch batch = batch_of(6, 517);
  Matrix n = random_matrix(6, 72, 1, type, 30), w = random_matrix(517, 72, 2, type, 3);
  OpRunner runner(op, type, batch, {.threads = 2});
  const Expected e = reference(n, w, batch);
  const Gradients got = runner.backward({n}, {w}, {}, {});
  EXPECT_NEAR(runner.loss().nll, e.nll, testing::kFp32Op * e.nll);
  EXPECT_THAT(got.in[0].v, Rho(e.dn.v, testing::kBf16Op));
  w.at(300, 5) = NAN;
  runner.forward({n}, {w});
  EXPECT_TRUE(std::isnan(runner.loss().nll));
}

TEST_P(LmHeadLossTest, SameBitsWhateverElseRuns) {
  const auto [type, strategy] = GetParam();
  const LmHeadLoss op(72, 2100, strategy);
  const Batch batch = batch_of(60, 2100);
  const Tokens tokens = batch.tokens();
  GuardedView n(type, 60, 72), w(type, 2100, 72), dn(type, 60, 72), dw(DType::kF32, 2100, 72);
  n.write(random_matrix(60, 72, 1, type));
  w.write(random_matrix(2100, 72, 2, type, 0.3));
  ThreadPool pool(3);
  const GuardedView scratch(DType::kU8, 1, op.cpu_scratch_bytes({60, 60, size_of(type)}, 3));
  LossSum loss;
  const CpuContext context{
      &pool, type, &tokens, {scratch.view().row<std::byte>(0), static_cast<size_t>(scratch.view().cols)}, &loss};
  const bool add[] = {false};
  const TensorView in[] = {n.view()}, param[] = {w.view()}, in_grad[] = {dn.view()}, param_grad[] = {dw.view()};
  const BackwardArgs args{in, param, {}, {}, in_grad, add, param_grad, add};
  op.backward(context, args);
  const double nll = loss.nll;
  const Matrix first_dn = dn.read(), first_dw = dw.read();
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) pool.run(4, [](int64_t) { std::this_thread::yield(); });
  });
  for (int i = 0; i < 5; ++i) {
    op.backward(context, args);
    EXPECT_EQ(loss.nll, nll);
    EXPECT_EQ(dn.read().v, first_dn.v);
    EXPECT_EQ(dw.read().v, first_dw.v);
  }
  stop = true;
  other.join();
}

INSTANTIATE_TEST_SUITE_P(Computes, LmHeadLossTest,
                         ::testing::Values(Compute{DType::kF32, GemmStrategy::kWiden},
                                           Compute{DType::kBF16, GemmStrategy::kWiden},
                                           Compute{DType::kBF16, GemmStrategy::kNative}),
                         [](const auto& test) {
                           if (test.param.first == DType::kF32) return "fp32";
                           return test.param.second == GemmStrategy::kWiden ? "bf16_widen" : "bf16_native";
                         });

TEST(LmHeadLoss, ReferenceMatchesDifferences) {
  Batch batch = batch_of(5, 11);
  batch.loss_scale = 1;
  const Matrix n = random_matrix(5, 4, 1, DType::kF32), w = random_matrix(11, 4, 2, DType::kF32);
  const Expected e = reference(n, w, batch);
  const auto dn = testing::central_difference(n.v, [&](const std::vector<double>& v) {
    Matrix moved = n;
    moved.v = v;
    return reference(moved, w, batch).nll;
  });
  const auto dw = testing::central_difference(w.v, [&](const std::vector<double>& v) {
    Matrix moved = w;
    moved.v = v;
    return reference(n, moved, batch).nll;
  });
  EXPECT_THAT(e.dn.v, Rho(dn, testing::kFp64Difference));
  EXPECT_THAT(e.dw.v, Rho(dw, testing::kFp64Difference));
}

// The bound of the class comment, at the vocabularies of Qwen2.5-0.5B and Qwen3.5, with two threads.
TEST(LmHeadLoss, ScratchIsBounded) {
  for (const int64_t vocabulary : {49152, 151936, 248320}) {
    for (const GemmStrategy strategy : {GemmStrategy::kWiden, GemmStrategy::kNative}) {
      const LmHeadLoss op(896, vocabulary, strategy);
      EXPECT_LE(op.cpu_scratch_bytes({.tokens = 8192}, 2), int64_t{230} << 20) << vocabulary;
    }
  }
  EXPECT_LE(LmHeadLoss(896, 517).cpu_scratch_bytes({.tokens = 8}, 2), int64_t{12} << 20);
}

TEST(LmHeadLoss, LogitsForGeneration) {
  for (const DType type : {DType::kBF16, DType::kF32}) {
    for (const int64_t tokens : {1, 3, 40}) {
      GuardedView n(type, tokens, 72), w(type, 517, 72), logits(DType::kF32, tokens, 517);
      const Matrix a = random_matrix(tokens, 72, 1, type), b = random_matrix(517, 72, 2, type);
      n.write(a);
      w.write(b);
      const GuardedView scratch(DType::kU8, 1, lm_head_logits_scratch_bytes(tokens, 72, 517, type, 2));
      ThreadPool pool(2);
      const CpuContext context{.pool = &pool,
                               .activation = type,
                               .scratch = {scratch.view().row<std::byte>(0), static_cast<size_t>(scratch.view().cols)}};
      lm_head_logits(context, n.view(), w.view(), logits.view());
      Matrix expected(tokens, 517);
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t v = 0; v < 517; ++v) {
          for (int64_t h = 0; h < 72; ++h) expected.at(t, v) += a.at(t, h) * b.at(v, h);
        }
      }
      EXPECT_THAT(logits.read().v, Rho(expected.v, testing::kFp32Op));
      EXPECT_TRUE(logits.intact() && scratch.intact());
    }
  }
}

}  // namespace
}  // namespace lazytrain::ops
