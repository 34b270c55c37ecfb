#include "ops/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/attention_reference.h"
#include "ops/testing.h"

namespace lazytrain::ops {
namespace {

using namespace lazytrain::ops::testing;
using ::testing::Not;

// Every head layout in question (one kv head, as many as query heads, groups of 7, 3, 5, more heads than share a tile),
// lengths around the tile of 64, documents of one token in a row, and head sizes that do not fill vectors.
const std::vector<AttentionCase> kCases = {
    {1, 1, 4, {1}},
    {3, 1, 16, {3}},
    {2, 2, 64, {257}},
    {14, 2, 64, {70, 1, 1, 129}},
    {6, 2, 12, {1, 2, 64, 65, 63}},
    {10, 2, 80, {128, 5}},
    {9, 1, 32, {100, 31}},
    {3, 3, 96, {66, 1}},
    {4, 2, 128, {1, 90}},
    {2, 1, 256, {67}},
    {2, 1, 20, {5, 0, 6}},
};

Attention op_of(const AttentionCase& c) {
  return Attention(c.query_heads, c.kv_heads, c.head_dim, static_cast<float>(c.scale()));
}

struct Inputs {
  Matrix q, k, v, dout;

  Inputs(const AttentionCase& c, DType dtype, double logit_scale = 1)
      : q(random_matrix(c.tokens(), c.query_heads * c.head_dim, 1, dtype, logit_scale)),
        k(random_matrix(c.tokens(), c.kv_heads * c.head_dim, 2, dtype)),
        v(random_matrix(c.tokens(), c.kv_heads * c.head_dim, 3, dtype)),
        dout(random_matrix(c.tokens(), c.query_heads * c.head_dim, 4, dtype)) {}
  std::vector<Matrix> in() const { return {q, k, v}; }
  std::vector<Matrix> out_grad() const { return {dout, Matrix(dout.rows, 1)}; }  // lse has no gradient: any memory does
};

struct Bounds {
  double out, lse, grad;
};
Bounds bounds(DType dtype) {
  if (dtype == DType::kF32) return {kFp32Attention, kFp32Attention, kFp32Attention};
  return {kBf16AttentionOut, kFp32Attention, kBf16AttentionGrad};  // lse is fp32 of the same bf16 inputs
}

class AttentionTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, AttentionTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

TEST_P(AttentionTest, MatchesTheDefinition) {
  for (const AttentionCase& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c.query_heads << "/" << c.kv_heads << " heads of " << c.head_dim << ", T "
                                      << c.tokens());
    const Attention op = op_of(c);
    const Inputs x(c, GetParam());
    const AttentionReference expected(c, x.q, x.k, x.v);
    const AttentionReference::Grads grads = expected.backward(x.dout);
    OpRunner runner(op, GetParam(), documents(c.documents), {.threads = 2, .row_gap = 8});
    const auto out = runner.forward(x.in(), {});
    EXPECT_THAT(out[0].v, Rho(expected.out.v, bounds(GetParam()).out));
    EXPECT_THAT(out[1].v, Rho(expected.lse.v, bounds(GetParam()).lse));
    const Gradients actual = runner.backward(x.in(), {}, out, x.out_grad());
    EXPECT_THAT(actual.in[2].v, Rho(grads.v.v, bounds(GetParam()).grad));
    // A document of one token has P = 1: dq and dk are zero in truth and what is left of rounding in practice.
    if (c.tokens() == 1) continue;
    EXPECT_THAT(actual.in[0].v, Rho(grads.q.v, bounds(GetParam()).grad));
    EXPECT_THAT(actual.in[1].v, Rho(grads.k.v, bounds(GetParam()).grad));
  }
}

TEST_P(AttentionTest, EveryInstructionSetMatchesTheDefinition) {
  for (const AttentionCase& c : {AttentionCase{3, 1, 20, {66, 1, 9}}, AttentionCase{2, 2, 80, {65}}}) {
    const Attention op = op_of(c);
    const Inputs x(c, GetParam());
    const AttentionReference expected(c, x.q, x.k, x.v);
    const AttentionReference::Grads grads = expected.backward(x.dout);
    for_each_target([&] {
      OpRunner runner(op, GetParam(), documents(c.documents));
      const auto out = runner.forward(x.in(), {});
      EXPECT_THAT(out[0].v, Rho(expected.out.v, bounds(GetParam()).out));
      EXPECT_THAT(out[1].v, Rho(expected.lse.v, bounds(GetParam()).lse));
      const Gradients actual = runner.backward(x.in(), {}, out, x.out_grad());
      EXPECT_THAT(actual.in[0].v, Rho(grads.q.v, bounds(GetParam()).grad));
      EXPECT_THAT(actual.in[1].v, Rho(grads.k.v, bounds(GetParam()).grad));
      EXPECT_THAT(actual.in[2].v, Rho(grads.v.v, bounds(GetParam()).grad));
    });
  }
}

TEST(AttentionReference, GradientsAreTheDifferences) {
  const AttentionCase c{6, 2, 4, {3, 1, 4}};
  const Inputs x(c, DType::kF32);
  const AttentionReference::Grads grads = AttentionReference(c, x.q, x.k, x.v).backward(x.dout);
  const auto loss = [&](const std::vector<double>& values, int which) {
    Matrix m[3] = {x.q, x.k, x.v};
    m[which].v = values;
    return dot(AttentionReference(c, m[0], m[1], m[2]).out.v, x.dout.v);
  };
  const auto difference = [&](const Matrix& at, int which) {
    return central_difference(at.v, [&](const std::vector<double>& values) { return loss(values, which); });
  };
  EXPECT_THAT(difference(x.q, 0), Rho(grads.q.v, kFp64Difference));
  EXPECT_THAT(difference(x.k, 1), Rho(grads.k.v, kFp64Difference));
  EXPECT_THAT(difference(x.v, 2), Rho(grads.v.v, kFp64Difference));
}

// What the op computes is far from what each mistake computes: a kernel that made it would fail the tests above.
TEST(Attention, TheTestsSeeEveryMutation) {
  const AttentionCase c{6, 2, 16, {70, 3, 40}};
  const Attention op = op_of(c);
  const Inputs x(c, DType::kBF16);
  OpRunner runner(op, DType::kBF16, documents(c.documents));
  const auto out = runner.forward(x.in(), {});
  const Gradients actual = runner.backward(x.in(), {}, out, x.out_grad());
  for (const Mutation m : {Mutation::kNoScale, Mutation::kScaleTwice, Mutation::kHeadsModulo, Mutation::kDocumentLeak,
                           Mutation::kSeesNext, Mutation::kMissesItself}) {
    const AttentionReference wrong(c, x.q, x.k, x.v, m);
    const AttentionReference::Grads grads = wrong.backward(x.dout);
    EXPECT_THAT(out[0].v, Not(Rho(wrong.out.v, 5 * kBf16AttentionOut))) << static_cast<int>(m);
    EXPECT_THAT(actual.in[0].v, Not(Rho(grads.q.v, 5 * kBf16AttentionGrad))) << static_cast<int>(m);
    EXPECT_THAT(actual.in[1].v, Not(Rho(grads.k.v, 5 * kBf16AttentionGrad))) << static_cast<int>(m);
  }
}

// A document gives the same bits wherever it stands and whatever stands beside it.
TEST_P(AttentionTest, DocumentsDoNotTouchEachOther) {
  const AttentionCase alone{4, 2, 32, {80}};
  const AttentionCase packed{4, 2, 32, {17, 80, 9}};
  const Attention op = op_of(alone);
  const Inputs x(packed, GetParam());
  const auto middle = [](const Matrix& m) {
    Matrix result(80, m.cols);
    std::copy_n(m.v.begin() + 17 * m.cols, 80 * m.cols, result.v.begin());
    return result;
  };
  OpRunner all(op, GetParam(), documents(packed.documents)), one(op, GetParam(), documents(alone.documents));
  const auto out = all.forward(x.in(), {});
  const std::vector<Matrix> in = {middle(x.q), middle(x.k), middle(x.v)};
  const auto out_alone = one.forward(in, {});
  EXPECT_EQ(middle(out[0]).v, out_alone[0].v);
  EXPECT_EQ(middle(out[1]).v, out_alone[1].v);
  const Gradients grads = all.backward(x.in(), {}, out, x.out_grad());
  const Gradients grads_alone = one.backward(in, {}, out_alone, {middle(x.dout), Matrix(80, 1)});
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(middle(grads.in[i]).v, grads_alone.in[i].v) << i;
}

TEST_P(AttentionTest, SameBitsForEveryNumberOfThreads) {
  const AttentionCase c{10, 2, 24, {130, 1, 65, 64, 7}};
  const Attention op = op_of(c);
  const Inputs x(c, GetParam());
  OpRunner one(op, GetParam(), documents(c.documents));
  const auto out = one.forward(x.in(), {});
  const Gradients grads = one.backward(x.in(), {}, out, x.out_grad());
  for (const int threads : {2, 3, 3, 8}) {
    OpRunner many(op, GetParam(), documents(c.documents), {.threads = threads});
    const auto again = many.forward(x.in(), {});
    EXPECT_EQ(again[0].v, out[0].v) << threads;
    EXPECT_EQ(again[1].v, out[1].v) << threads;
    const Gradients grads_again = many.backward(x.in(), {}, out, x.out_grad());
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(grads_again.in[i].v, grads.in[i].v) << threads << " " << i;
  }
}

TEST_P(AttentionTest, AddsWhereAsked) {
  for (const AttentionCase& c : {AttentionCase{6, 2, 20, {66, 3}}, AttentionCase{2, 2, 16, {66, 3}}}) {
    const Attention op = op_of(c);
    const Inputs x(c, GetParam());
    OpRunner runner(op, GetParam(), documents(c.documents));
    const auto out = runner.forward(x.in(), {});
    const Gradients plain = runner.backward(x.in(), {}, out, x.out_grad());
    for (int which = 0; which < 3; ++which) {
      const auto at = static_cast<size_t>(which);
      const Matrix before = random_matrix(x.q.rows, plain.in[at].cols, 9, GetParam());
      const Gradients added = runner.backward(x.in(), {}, out, x.out_grad(), {.in = {{which, before}}, .param = {}});
      Matrix expected = plain.in[at];
      for (size_t i = 0; i < expected.v.size(); ++i) expected.v[i] += before.v[i];
      EXPECT_THAT(added.in[at].v, Rho(expected.v, GetParam() == DType::kF32 ? kFp32Op : kBf16Op)) << which;
      for (size_t other = 0; other < 3; ++other) {
        if (other == at) continue;
        EXPECT_EQ(added.in[other].v, plain.in[other].v);
      }
    }
  }
}

TEST_P(AttentionTest, WritesOnlyTheGradientsAskedFor) {
  const AttentionCase c{4, 2, 16, {20}};
  const Attention op = op_of(c);
  const Inputs x(c, GetParam());
  OpRunner all(op, GetParam(), documents(c.documents));
  const auto out = all.forward(x.in(), {});
  const Gradients full = all.backward(x.in(), {}, out, x.out_grad());
  OpRunner only_v(op, GetParam(), documents(c.documents), {.no_input_gradient = {0, 1}});
  EXPECT_EQ(only_v.backward(x.in(), {}, out, x.out_grad()).in[2].v, full.in[2].v);
}

TEST(Attention, HugeLogitsStayFinite) {
  const AttentionCase c{2, 1, 16, {90, 2}};
  const Attention op = op_of(c);
  const Inputs x(c, DType::kF32, /*logit_scale=*/1e4);  // scores of standard deviation 1e4
  const AttentionReference expected(c, x.q, x.k, x.v);
  EXPECT_GT(*std::max_element(expected.lse.v.begin(), expected.lse.v.end()), 1e4);
  OpRunner runner(op, DType::kF32, documents(c.documents));
  const auto out = runner.forward(x.in(), {});
  // A score of 3e4 has an fp32 step of 2e-3: that is the relative error of the probabilities.
  EXPECT_THAT(out[0].v, Rho(expected.out.v, kBf16AttentionOut));
  EXPECT_THAT(out[1].v, Rho(expected.lse.v, kFp32Attention));
  const Gradients grads = runner.backward(x.in(), {}, out, x.out_grad());
  for (const Matrix& m : grads.in) {
    EXPECT_TRUE(std::all_of(m.v.begin(), m.v.end(), [](double v) { return std::isfinite(v); }));
  }
}

TEST_P(AttentionTest, NanReachesThoseWhoSeeItAndNobodyElse) {
  const AttentionCase c{2, 1, 16, {10, 80, 10}};
  const Attention op = op_of(c);
  Inputs x(c, GetParam());
  x.k.at(30, 3) = NAN;
  OpRunner runner(op, GetParam(), documents(c.documents));
  const auto out = runner.forward(x.in(), {});
  for (int64_t t = 0; t < c.tokens(); ++t) {
    EXPECT_EQ(std::isnan(out[0].at(t, 5)), t >= 30 && t < 90) << t;
    EXPECT_EQ(std::isnan(out[1].at(t, 1)), t >= 30 && t < 90) << t;
  }
}

// Scratch grows with the tokens, not with their square.
TEST(Attention, LongContextInBoundedScratch) {
  const AttentionCase c{2, 1, 16, {8192}};
  const Attention op = op_of(c);
  const int64_t short_bytes = op.cpu_scratch_bytes({1024, 1024, 2}, 2),
                long_bytes = op.cpu_scratch_bytes({8192, 8192, 2}, 2);
  EXPECT_LT(long_bytes, 8 * short_bytes);
  EXPECT_LT(long_bytes, int64_t{8} << 20);
  // Every value is 1, so is every output; every key gets dv_s = Σ_{t >= s} 1 / (t + 1) from equal scores.
  const Matrix zero(8192, 32), key(8192, 16), ones(8192, 16, 1.0), dout(8192, 32, 1.0);
  OpRunner runner(op, DType::kF32, documents(c.documents), {.threads = 2});
  const auto out = runner.forward({zero, key, ones}, {});
  EXPECT_THAT(out[0].v, Rho(Matrix(8192, 32, 1.0).v, kFp32Attention));
  EXPECT_NEAR(out[1].at(8191, 0), std::log(8192.0), 1e-5);
  const Gradients grads = runner.backward({zero, key, ones}, {}, out, {dout, Matrix(8192, 1)});
  Matrix expected(8192, 16);
  double sum = 0;
  for (int64_t s = 8191; s >= 0; --s) {
    sum += 2.0 / static_cast<double>(s + 1);  // two query heads
    for (int64_t j = 0; j < 16; ++j) expected.at(s, j) = sum;
  }
  EXPECT_THAT(grads.in[2].v, Rho(expected.v, kFp32Attention));
}

TEST(Attention, DeclaresItsWork) {
  const Attention op(14, 2, 64, 0.125f);
  const graph::Dims dims{2048, 512, 2};
  EXPECT_DOUBLE_EQ(op.forward_work(dims).flops, 2.0 * 2048 * 512 * 14 * 64);
  EXPECT_DOUBLE_EQ(op.backward_work(dims).flops, 2.5 * op.forward_work(dims).flops);
  EXPECT_THROW(Attention(14, 4, 64, 0.125f), UsageError);
}

// ---- decoding -------------------------------------------------------------------------------------------------------

class DecodeTest : public AttentionTest {};
INSTANTIATE_TEST_SUITE_P(DTypes, DecodeTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

// Sequences of different lengths, each compared with the last token of the same sequence run as a document.
TEST_P(DecodeTest, EqualsTheLastTokenOfEachSequence) {
  for (const AttentionCase& c : {AttentionCase{14, 2, 64, {1, 200, 64, 65}}, AttentionCase{70, 1, 12, {3, 129}},
                                 AttentionCase{3, 3, 80, {70}}}) {
    const Inputs x(c, GetParam());
    const AttentionReference expected(c, x.q, x.k, x.v);
    const auto batch = static_cast<int64_t>(c.documents.size());
    const AttentionShape shape{c.query_heads, c.kv_heads, c.head_dim, static_cast<float>(c.scale())};
    Matrix last_q(batch, x.q.cols), last_out(batch, x.q.cols);
    std::deque<GuardedView> caches;
    std::vector<CachedSequence> sequences;
    int64_t row = 0;
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t length = c.documents[static_cast<size_t>(b)];
      for (const Matrix* m : {&x.k, &x.v}) {
        Matrix cached(length + 5, m->cols, NAN);  // room for more tokens, which must not be read
        std::copy_n(m->v.begin() + row * m->cols, length * m->cols, cached.v.begin());
        caches.emplace_back(GetParam(), length + 5, m->cols).write(cached);
      }
      sequences.push_back({caches[caches.size() - 2].view(), caches.back().view(), length});
      row += length;
      for (int64_t j = 0; j < x.q.cols; ++j) {
        last_q.at(b, j) = x.q.at(row - 1, j);
        last_out.at(b, j) = expected.out.at(row - 1, j);
      }
    }
    for (const int threads : {1, 3}) {
      GuardedView q(GetParam(), batch, x.q.cols, 8), out(GetParam(), batch, x.q.cols, 8);
      q.write(last_q);
      ThreadPool pool(threads);
      const GuardedView scratch(DType::kU8, 1, attention_decode_scratch_bytes(shape, threads));
      const CpuContext context{.pool = &pool,
                               .activation = GetParam(),
                               .tokens = nullptr,
                               .scratch = {scratch.view().row<std::byte>(0), static_cast<size_t>(scratch.view().cols)},
                               .loss = nullptr};
      attention_decode(context, shape, q.view(), sequences, out.view());
      EXPECT_THAT(out.read().v, Rho(last_out.v, bounds(GetParam()).out));
      EXPECT_TRUE(q.intact() && out.intact() && scratch.intact());
    }
  }
}

}  // namespace
}  // namespace lazytrain::ops
