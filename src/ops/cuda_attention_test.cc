// Attention from products and row kernels, under emulation, against the CPU's op.
#include "ops/cuda_attention.h"

#include <gtest/gtest.h>

#include "cuda/emulation.h"
#include "ops/cuda_testing.h"
#include "ops/testing.h"

namespace lazytrain::ops {
namespace {

using namespace lazytrain::ops::testing;

class CudaAttentionTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, CudaAttentionTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

// The device's implementation as an op, so that the runner of the CPU's ops calls it on guarded memory.
class Emulated final : public CpuOp {
 public:
  Emulated(const Attention& op, ThreadPool& pool, int64_t scores_bytes, uint64_t order)
      : op_(op), libraries_(pool), stream_(order), attention_(cuda_kernels(), libraries_, op.shape(), scores_bytes) {}

  std::string_view name() const override { return "attention"; }
  std::vector<graph::ValueSpec> outputs() const override { return op_.outputs(); }
  graph::Work forward_work(const graph::Dims& dims) const override { return op_.forward_work(dims); }
  graph::Work backward_work(const graph::Dims& dims) const override { return op_.backward_work(dims); }
  graph::Reads backward_reads() const override { return op_.backward_reads(); }
  int64_t cpu_scratch_bytes(const graph::Dims& dims, int) const override { return attention_.scratch_bytes(dims); }
  void forward(const CpuContext& context, const ForwardArgs& args) const override {
    const DeviceTokens tokens{.host = *context.tokens};
    attention_.forward({.stream = stream_, .tokens = tokens, .scratch = context.scratch}, args);
  }
  void backward(const CpuContext& context, const BackwardArgs& args) const override {
    const DeviceTokens tokens{.host = *context.tokens};
    attention_.backward({.stream = stream_, .tokens = tokens, .scratch = context.scratch}, args);
  }

 private:
  const Attention& op_;
  mutable CpuLibraries libraries_;
  mutable cuda::ImmediateStream stream_;
  CudaAttention attention_;
};

struct Case {
  std::string name;
  int64_t query_heads, kv_heads, head_dim;
  std::vector<int64_t> documents;
  int64_t scores_bytes;
  int64_t gap;
};

TEST_P(CudaAttentionTest, MatchesTheCpu) {
  const DType dtype = GetParam();
  const std::vector<Case> cases = {{"two tokens", 1, 1, 8, {2}, 1 << 20, 0},
                                   {"groups, documents", 6, 2, 16, {17, 1, 40}, 1 << 20, 16},
                                   {"several chunks", 4, 2, 8, {70, 33}, 4 * 4 * 72 * 20, 0},
                                   {"chunks of the least rows, ragged", 3, 3, 20, {50}, 1, 3}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Batch batch = documents(c.documents);
    const int64_t t = batch.count(), q_width = c.query_heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
    const Attention op(c.query_heads, c.kv_heads, c.head_dim, 0.3f);
    const Matrix q = random_matrix(t, q_width, 1, dtype), k = random_matrix(t, kv_width, 2, dtype),
                 v = random_matrix(t, kv_width, 3, dtype), dout = random_matrix(t, q_width, 4, dtype);
    const Matrix before = random_matrix(t, kv_width, 5, dtype), no_lse(t, c.query_heads);
    OpRunner cpu(op, dtype, batch, {.row_gap = c.gap});
    const auto expected = cpu.forward({q, k, v}, {});
    const Accumulate adds{{{1, before}}, {}};
    const Gradients grads = cpu.backward({q, k, v}, {}, expected, {dout, no_lse}, adds);
    ThreadPool pool(1);
    std::vector<Matrix> first;
    for (const uint64_t order : {0, 1, 2}) {
      const Emulated emulated(op, pool, c.scores_bytes, order);
      OpRunner runner(emulated, dtype, batch, {.row_gap = c.gap});
      const auto out = runner.forward({q, k, v}, {});
      EXPECT_THAT(out[0].v, Rho(expected[0].v, dtype == DType::kF32 ? kFp32Attention : kBf16AttentionOut));
      EXPECT_THAT(out[1].v, Rho(expected[1].v, kFp32Attention));
      const Gradients own = runner.backward({q, k, v}, {}, expected, {dout, no_lse}, adds);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_THAT(own.in[i].v, Rho(grads.in[i].v, dtype == DType::kF32 ? kFp32Attention : kBf16AttentionGrad)) << i;
      }
      std::vector<Matrix> all = {out[0], out[1], own.in[0], own.in[1], own.in[2]};
      if (order == 0) first = all;
      for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].v, first[i].v) << "order " << order;
    }
  }
}

}  // namespace
}  // namespace lazytrain::ops
