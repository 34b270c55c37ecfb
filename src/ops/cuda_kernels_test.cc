// The kernels for CUDA under emulation: against the ops of the CPU device, on ragged shapes, and the same bits in any
// order of blocks and threads.
#include "ops/cuda_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "cuda/emulation.h"
#include "ops/add.h"
#include "ops/embedding.h"
#include "ops/lm_head_loss.h"
#include "ops/rmsnorm.h"
#include "ops/rotary.h"
#include "ops/row_groups.h"
#include "ops/swiglu.h"
#include "ops/testing.h"

namespace lazytrain::ops {
namespace {

using namespace lazytrain::ops::testing;
using cuda::ImmediateStream;

// Tokens, width, elements between rows: one; ragged; real; 128-bit rows with gaps, and gaps that break the alignment.
struct Size {
  int64_t tokens, width, gap;
};
const std::vector<Size> kSizes = {{1, 1, 0}, {3, 72, 0}, {70, 896, 16}, {40, 37, 16}, {19, 128, 3}, {35, 2100, 0}};

double bound(DType dtype) { return dtype == DType::kF32 ? kFp32Op : kBf16Op; }

class CudaKernels : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, CudaKernels, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

// Guarded device memory of one call, which is host memory here.
class Memory {
 public:
  TensorView in(const Matrix& m, DType dtype, int64_t gap = 0) {
    views_.emplace_back(dtype, m.rows, m.cols, gap).write(m);
    return views_.back().view();
  }
  TensorView out(int64_t rows, int64_t cols, DType dtype, int64_t gap = 0) {
    views_.emplace_back(dtype, rows, cols, gap);
    outputs_.push_back(views_.size() - 1);
    return views_.back().view();
  }
  // Begins with the values of `m`.
  TensorView in_out(const Matrix& m, DType dtype, int64_t gap = 0) {
    const TensorView view = in(m, dtype, gap);
    outputs_.push_back(views_.size() - 1);
    return view;
  }
  // A gradient that may be added to.
  TensorView gradient(const Matrix& like, const Matrix* before, DType dtype, int64_t gap = 0) {
    return before != nullptr ? in_out(*before, dtype, gap) : out(like.rows, like.cols, dtype, gap);
  }
  float* scratch(int64_t floats) { return out_of_sight(DType::kF32, floats).row<float>(0); }
  TensorView out_of_sight(DType dtype, int64_t elements) {
    views_.emplace_back(dtype, 1, std::max<int64_t>(elements, 1));
    return views_.back().view();
  }
  // Of the outputs, in the order in which they were made.
  std::vector<Matrix> results() const {
    std::vector<Matrix> result;
    for (const GuardedView& view : views_) EXPECT_TRUE(view.intact()) << "written outside of a view";
    for (const size_t i : outputs_) result.push_back(views_[i].read());
    return result;
  }

 private:
  std::deque<GuardedView> views_;
  std::vector<size_t> outputs_;
};

// What `call` leaves in its outputs, the same in every order.
std::vector<Matrix> results_of(const std::function<void(cuda::Stream&, Memory&)>& call) {
  std::vector<Matrix> first;
  for (const uint64_t order : {0, 1, 2}) {
    ImmediateStream stream(order);
    Memory memory;
    call(stream, memory);
    std::vector<Matrix> results = memory.results();
    if (order == 0) first = results;
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(std::memcmp(results[i].v.data(), first[i].v.data(), 8 * first[i].v.size()), 0)
          << "output " << i << " in order " << order;
    }
  }
  return first;
}

Matrix like(const Matrix& m, uint64_t stream, DType dtype) { return random_matrix(m.rows, m.cols, stream, dtype); }

TEST_P(CudaKernels, RmsNorm) {
  const DType dtype = GetParam();
  for (const Size& size : kSizes) {
    SCOPED_TRACE(size.tokens * 10000 + size.width);
    const Matrix x = random_matrix(size.tokens, size.width, 1, dtype, 3), dy = like(x, 2, dtype);
    const Matrix w = random_matrix(1, size.width, 3, dtype, 0.5, 1), zero(size.tokens, 1);
    const RmsNorm op(size.width, 1e-6f);
    OpRunner runner(op, dtype, documents({size.tokens}), {.row_gap = size.gap});
    const auto expected = runner.forward({x}, {w});
    const auto out = results_of([&](cuda::Stream& stream, Memory& m) {
      const TensorView y = m.out(size.tokens, size.width, dtype, size.gap), rstd = m.out(size.tokens, 1, DType::kF32);
      on_cuda::rmsnorm_forward(stream, m.in(x, dtype, size.gap), m.in(w, dtype), 1e-6f, y, rstd);
    });
    EXPECT_THAT(out[0].v, Rho(expected[0].v, bound(dtype)));
    EXPECT_THAT(out[1].v, Rho(expected[1].v, kFp32Op));
    if (size.width == 1) continue;  // dx of one element is 0 but for eps
    const Matrix before_x = like(x, 4, dtype), before_w = like(w, 5, DType::kF32);
    for (const bool add : {false, true}) {
      const Gradients grads = runner.backward({x}, {w}, expected, {dy, zero},
                                              add ? Accumulate{{{0, before_x}}, {{0, before_w}}} : Accumulate{});
      const auto backward = [&](bool want_x, bool want_w) {
        return results_of([&](cuda::Stream& stream, Memory& m) {
          on_cuda::rmsnorm_backward(
              stream, {.x = m.in(x, dtype, size.gap),
                       .w = m.in(w, dtype),
                       .rstd = m.in(expected[1], DType::kF32),
                       .dy = m.in(dy, dtype, size.gap),
                       .dx = want_x ? m.gradient(x, add ? &before_x : nullptr, dtype, size.gap) : TensorView{},
                       .add_dx = add,
                       .dw = want_w ? m.gradient(w, add ? &before_w : nullptr, DType::kF32) : TensorView{},
                       .add_dw = add,
                       .scratch = m.scratch(on_cuda::rmsnorm_scratch_floats(size.tokens, size.width))});
        });
      };
      const auto both = backward(true, true);
      EXPECT_THAT(both[0].v, Rho(grads.in[0].v, bound(dtype)));
      EXPECT_THAT(both[1].v, Rho(grads.param[0].v, kFp32Op));
      EXPECT_EQ(backward(true, false)[0].v, both[0].v);
      EXPECT_EQ(backward(false, true)[0].v, both[1].v);
    }
  }
}

TEST_P(CudaKernels, Rotary) {
  const DType dtype = GetParam();
  struct Case {
    int64_t heads, head_dim, half, gap;
  };
  for (const Case& c : {Case{2, 64, 32, 16}, {3, 8, 4, 0}, {1, 6, 3, 0}, {3, 20, 5, 1}, {2, 256, 32, 0}}) {
    SCOPED_TRACE(c.head_dim);
    std::vector<float> inv_freq;
    for (int64_t j = 0; j < c.half; ++j) {
      inv_freq.push_back(std::pow(1e4f, -static_cast<float>(j) / static_cast<float>(c.half)));
    }
    const std::vector<int64_t> lengths = {17, 1, 9};
    Batch batch = documents(lengths);
    batch.positions[20] = 1'000'003;  // far out
    const Matrix x = random_matrix(batch.count(), c.heads * c.head_dim, 1, dtype), before = like(x, 2, dtype);
    const ops::Rotary op(c.heads, c.head_dim, inv_freq, 1.25f);
    OpRunner runner(op, dtype, batch, {.row_gap = c.gap});
    const auto run = [&](bool inverse, const Matrix* add) {
      return results_of([&](cuda::Stream& stream, Memory& m) {
        on_cuda::rotary(stream, {.x = m.in(x, dtype, c.gap),
                                 .y = m.gradient(x, add, dtype, c.gap),
                                 .positions = batch.positions.data(),
                                 .inv_freq = inv_freq,
                                 .heads = c.heads,
                                 .head_dim = c.head_dim,
                                 .scaling = 1.25f,
                                 .inverse = inverse,
                                 .add = add != nullptr});
      })[0];
    };
    EXPECT_THAT(run(false, nullptr).v, Rho(runner.forward({x}, {})[0].v, bound(dtype)));
    EXPECT_THAT(run(true, nullptr).v, Rho(runner.backward({x}, {}, {}, {x}).in[0].v, bound(dtype)));
    EXPECT_THAT(run(true, &before).v,
                Rho(runner.backward({x}, {}, {}, {x}, {{{0, before}}, {}}).in[0].v, bound(dtype)));
  }
}

TEST_P(CudaKernels, SwiGlu) {
  const DType dtype = GetParam();
  for (const Size& size : kSizes) {
    SCOPED_TRACE(size.tokens * 10000 + size.width);
    const Matrix gate = random_matrix(size.tokens, size.width, 1, dtype, 3), up = like(gate, 2, dtype),
                 dy = like(gate, 3, dtype), before = like(gate, 4, dtype);
    const SwiGlu op(size.width);
    OpRunner runner(op, dtype, documents({size.tokens}), {.row_gap = size.gap});
    const auto out = results_of([&](cuda::Stream& stream, Memory& m) {
      on_cuda::swiglu_forward(stream, m.in(gate, dtype, size.gap), m.in(up, dtype, size.gap),
                              m.out(size.tokens, size.width, dtype, size.gap));
    });
    EXPECT_THAT(out[0].v, Rho(runner.forward({gate, up}, {})[0].v, bound(dtype)));
    const Gradients grads = runner.backward({gate, up}, {}, {}, {dy}, {{{1, before}}, {}});
    const auto backward = [&](bool want_gate) {
      return results_of([&](cuda::Stream& stream, Memory& m) {
        on_cuda::swiglu_backward(stream,
                                 {.gate = m.in(gate, dtype, size.gap),
                                  .up = m.in(up, dtype, size.gap),
                                  .dy = m.in(dy, dtype, size.gap),
                                  .dgate = want_gate ? m.out(size.tokens, size.width, dtype, size.gap) : TensorView{},
                                  .add_dgate = false,
                                  .dup = m.in_out(before, dtype, size.gap),
                                  .add_dup = true});
      });
    };
    const auto both = backward(true);
    EXPECT_THAT(both[0].v, Rho(grads.in[0].v, bound(dtype)));
    EXPECT_THAT(both[1].v, Rho(grads.in[1].v, bound(dtype)));
    EXPECT_EQ(backward(false)[0].v, both[1].v);
  }
}

TEST(CudaKernels, SwiGluHoldsEveryGate) {
  const int64_t count = 4001;
  Matrix gate(1, count), up(1, count, 1.0);
  for (int64_t i = 0; i < count; ++i)
    gate.v[static_cast<size_t>(i)] = stored(static_cast<double>(i - 2000) / 10, DType::kF32);
  const auto run = [&] {
    return results_of([&](cuda::Stream& stream, Memory& m) {
      on_cuda::swiglu_forward(stream, m.in(gate, DType::kF32), m.in(up, DType::kF32), m.out(1, count, DType::kF32));
    })[0];
  };
  const Matrix out = run();
  for (size_t i = 0; i < gate.v.size(); ++i) {
    const double g = gate.v[i], expected = g / (1 + std::exp(-g));
    EXPECT_NEAR(out.v[i], expected, 1e-6 * std::abs(expected) + 1e-34) << g;
  }
  gate.v[7] = NAN;
  const Matrix with_nan = run();
  EXPECT_TRUE(std::isnan(with_nan.v[7]));
  EXPECT_EQ(with_nan.v[8], out.v[8]);
}

TEST_P(CudaKernels, AddCopyAndBiasGiveTheBitsOfTheCpu) {
  const DType dtype = GetParam();
  for (const Size& size : kSizes) {
    const Matrix a = random_matrix(size.tokens, size.width, 1, dtype), b = like(a, 2, dtype);
    const Matrix bias = random_matrix(1, size.width, 3, dtype);
    const ops::Add op(size.width);
    const auto results = results_of([&](cuda::Stream& stream, Memory& m) {
      const TensorView va = m.in(a, dtype, size.gap), vb = m.in(b, dtype, size.gap);
      on_cuda::add(stream, va, vb, m.out(size.tokens, size.width, dtype, size.gap));
      on_cuda::copy_rows(stream, va, m.out(size.tokens, size.width, dtype));
      on_cuda::add_bias(stream, m.in_out(a, dtype, size.gap), m.in(bias, dtype));
    });
    OpRunner runner(op, dtype, documents({size.tokens}));
    EXPECT_EQ(results[0].v, runner.forward({a, b}, {})[0].v);
    EXPECT_EQ(results[1].v, a.v);
    Matrix biased = a;
    for (int64_t t = 0; t < a.rows; ++t) {
      for (int64_t c = 0; c < a.cols; ++c) biased.at(t, c) = stored(a.at(t, c) + bias.at(0, c), dtype);
    }
    EXPECT_THAT(results[2].v, Rho(biased.v, 1e-7));  // the reference adds in double, then rounds twice
  }
}

TEST_P(CudaKernels, ColumnSums) {
  const DType dtype = GetParam();
  for (const Size& size : {Size{1, 1, 0}, {3, 72, 0}, {4113, 40, 8}, {300, 37, 16}, {129, 520, 1}}) {
    SCOPED_TRACE(size.tokens);
    const Matrix x = random_matrix(size.tokens, size.width, 1, dtype),
                 before = random_matrix(1, size.width, 2, DType::kF32);
    for (const bool add : {false, true}) {
      Matrix expected = add ? before : Matrix(1, size.width);
      for (int64_t t = 0; t < x.rows; ++t) {
        for (int64_t c = 0; c < x.cols; ++c) expected.at(0, c) += x.at(t, c);
      }
      const auto sums = results_of([&](cuda::Stream& stream, Memory& m) {
        on_cuda::column_sums(stream, m.in(x, dtype, size.gap), m.gradient(before, add ? &before : nullptr, DType::kF32),
                             add, m.scratch(on_cuda::column_sums_scratch_floats(size.tokens, size.width)));
      });
      EXPECT_THAT(sums[0].v, Rho(expected.v, kFp32Op));
    }
  }
}

// Few ids that come often, one id alone, and one that is all there is.
TEST_P(CudaKernels, EmbeddingGivesTheBitsOfTheCpu) {
  const DType dtype = GetParam();
  for (const Size& size : {Size{1, 1, 0}, {200, 72, 8}, {57, 37, 3}, {64, 640, 0}}) {
    for (const int64_t vocabulary : {1, 13}) {
      Batch batch = documents({size.tokens});
      const CounterRng rng(3, 4);
      for (size_t t = 0; t < batch.ids.size(); ++t) {
        batch.ids[t] = static_cast<int32_t>(rng.below(t, static_cast<uint64_t>(vocabulary)));
      }
      const Matrix table = random_matrix(vocabulary, size.width, 1, dtype),
                   dy = random_matrix(size.tokens, size.width, 2, dtype),
                   before = random_matrix(vocabulary, size.width, 3, DType::kF32);
      const Embedding op(vocabulary, size.width);
      OpRunner runner(op, dtype, batch, {.row_gap = size.gap});
      const RowGroups groups = group_rows(batch.ids);
      const on_cuda::DeviceRowGroups on_device{groups.order.data(), groups.starts.data(), groups.rows.data(),
                                               static_cast<int64_t>(groups.rows.size())};
      const auto results = results_of([&](cuda::Stream& stream, Memory& m) {
        on_cuda::gather_rows(stream, m.in(table, dtype), batch.ids.data(),
                             m.out(size.tokens, size.width, dtype, size.gap));
        const TensorView view = m.in(dy, dtype, size.gap), fresh = m.out(vocabulary, size.width, DType::kF32);
        on_cuda::fill_zero(stream, fresh);
        on_cuda::scatter_add_rows(stream, view, on_device, fresh);
        on_cuda::scatter_add_rows(stream, view, on_device, m.in_out(before, DType::kF32));
      });
      EXPECT_EQ(results[0].v, runner.forward({}, {table})[0].v);
      EXPECT_EQ(results[1].v, runner.backward({}, {table}, {}, {dy}).param[0].v);
      EXPECT_EQ(results[2].v, runner.backward({}, {table}, {}, {dy}, {{}, {{0, before}}}).param[0].v);
    }
  }
}

struct LossResult {
  double nll, count;
  Matrix gradient;  // of the logits
};

LossResult cuda_loss(const Matrix& logits, const Batch& batch, DType gradient, int64_t gap) {
  const int64_t rows = logits.rows, stride = logits.cols + gap;
  LossResult result{};
  const auto out = results_of([&](cuda::Stream& stream, Memory& m) {
    const TensorView view = m.in_out(logits, DType::kF32, gap);
    std::vector<double> nll(static_cast<size_t>(rows)), loss = {100, 1000};
    const TensorView in_place{view.data, gradient, rows, logits.cols, gradient == DType::kF32 ? stride : 2 * stride};
    on_cuda::cross_entropy(stream, {.logits = view,
                                    .targets = batch.targets.data(),
                                    .scale = batch.loss_scale,
                                    .nll = nll.data(),
                                    .dlogits = in_place});
    on_cuda::add_losses(stream, nll.data(), batch.targets.data(), rows, true, loss.data());
    result = {loss[0] - 100, loss[1] - 1000, Matrix(rows, logits.cols)};
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < logits.cols; ++c) {
        result.gradient.at(r, c) =
            gradient == DType::kF32 ? in_place.row<float>(r)[c] : to_float(in_place.row<bf16>(r)[c]);
      }
    }
    on_cuda::add_losses(stream, nll.data(), batch.targets.data(), rows, false, loss.data());
    if (std::isfinite(result.nll)) {
      EXPECT_NEAR(loss[0], result.nll, 1e-9);
    }
    EXPECT_EQ(loss[1], result.count);
  });
  return result;
}

// The LM head with the identity as its matrix: its logits are its input, its gradients those of the logits.
TEST_P(CudaKernels, CrossEntropy) {
  for (const Size& size : {Size{1, 1, 0}, {5, 61, 3}, {9, 512, 0}, {7, 2500, 4}, {3, 37, 0}}) {
    SCOPED_TRACE(size.width);
    Batch batch = documents({size.tokens});
    const CounterRng rng(3, 4);
    for (size_t t = 0; t < batch.targets.size(); ++t) {
      batch.targets[t] = t % 4 == 3 ? -1 : static_cast<int32_t>(rng.below(t, static_cast<uint64_t>(size.width)));
    }
    batch.loss_scale = 0.37;
    const Matrix logits = random_matrix(size.tokens, size.width, 1, DType::kF32, 5);
    Matrix identity(size.width, size.width);
    for (int64_t i = 0; i < size.width; ++i) identity.at(i, i) = 1;
    const LmHeadLoss op(size.width, size.width);
    OpRunner runner(op, DType::kF32, batch);
    const Gradients grads = runner.backward({logits}, {identity}, {}, {});
    const LossResult loss = cuda_loss(logits, batch, GetParam(), size.gap);
    EXPECT_NEAR(loss.nll, runner.loss().nll, 1e-6 * (1 + std::abs(runner.loss().nll)));
    EXPECT_EQ(loss.count, static_cast<double>(runner.loss().count));
    EXPECT_THAT(loss.gradient.v, Rho(grads.in[0].v, bound(GetParam())));
  }
}

TEST(CudaKernels, CrossEntropyKeepsWhatIsNotFinite) {
  Batch batch = documents({6});
  batch.targets = {1, 1, 1, -1, 0, 2};
  Matrix logits = random_matrix(6, 70, 1, DType::kF32);
  logits.at(0, 50) = NAN;
  logits.at(1, 3) = INFINITY;
  logits.at(3, 3) = NAN;  // not counted
  for (int64_t c = 0; c < 70; ++c) logits.at(2, c) = NAN;
  for (int64_t c = 1; c < 70; ++c) logits.at(4, c) = -INFINITY;  // the target alone is possible
  const auto nll_of = [&](int64_t row) {
    Matrix one(1, 70);
    std::copy_n(logits.v.begin() + 70 * row, 70, one.v.begin());
    Batch single = documents({1});
    single.targets = {batch.targets[static_cast<size_t>(row)]};
    return cuda_loss(one, single, DType::kF32, 0);
  };
  for (const int64_t row : {0, 1, 2}) EXPECT_FALSE(std::isfinite(nll_of(row).nll)) << row;
  EXPECT_EQ(nll_of(3).nll, 0);
  EXPECT_THAT(nll_of(3).gradient.v, ::testing::Each(0.0));
  EXPECT_NEAR(nll_of(4).nll, 0, 1e-6);
  EXPECT_TRUE(std::isfinite(nll_of(5).nll));
}

TEST(RowGroupsOf, KeepTheOrderOfTokens) {
  const std::vector<int32_t> ids = {7, 2, 7, 7, 0, 2};
  const RowGroups groups = group_rows(ids);
  EXPECT_EQ(groups.rows, (std::vector<int32_t>{0, 2, 7}));
  EXPECT_EQ(groups.starts, (std::vector<int32_t>{0, 1, 3, 6}));
  EXPECT_EQ(groups.order, (std::vector<int32_t>{4, 1, 5, 0, 2, 3}));
  EXPECT_TRUE(group_rows({}).rows.empty());
}

}  // namespace
}  // namespace lazytrain::ops
