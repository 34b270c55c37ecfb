// What the tests of ops share: matrices of doubles, the error measure, reproducible random fill, and a runner that
// calls one CpuOp on guarded memory. Header only; not part of the library.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/arith.h"
#include "base/dtype.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "ops/op.h"
#include "ops/tolerances.h"

namespace lazytrain::ops::testing {

// ---- values -------------------------------------------------------------------------------------------------------

// A row-major matrix of doubles: what references compute on.
struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> v;

  Matrix() = default;
  Matrix(int64_t r, int64_t c, double fill = 0) : rows(r), cols(c), v(static_cast<size_t>(r * c), fill) {}
  double& at(int64_t r, int64_t c) { return v[static_cast<size_t>(r * cols + c)]; }
  double at(int64_t r, int64_t c) const { return v[static_cast<size_t>(r * cols + c)]; }
};

// rms(actual - expected) / rms(expected); infinity when the sizes differ or a value of either side is not finite.
// Against an expectation of zeros the result is rms(actual): 0 only for exact zeros.
inline double rho(std::span<const double> actual, std::span<const double> expected) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!std::isfinite(actual[i]) || !std::isfinite(expected[i])) return std::numeric_limits<double>::infinity();
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  if (difference == 0) return 0;
  return std::sqrt(difference / (norm > 0 ? norm : static_cast<double>(actual.size())));
}
inline double rho(const Matrix& actual, const Matrix& expected) { return rho(actual.v, expected.v); }

// EXPECT_THAT(actual, Rho(expected, bound)), for std::vector<double> or Matrix::v.
MATCHER_P2(Rho, expected, bound, "is within rho " + ::testing::PrintToString(bound)) {
  const double error = rho(arg, expected);
  *result_listener << "rho " << error;
  return error <= bound;
}

// `v` as it is after storing in `dtype` (kF32 or kBF16).
inline double stored(double v, DType dtype) {
  const auto f = static_cast<float>(v);
  return dtype == DType::kBF16 ? to_float(to_bf16(f)) : f;
}

// Normal values of standard deviation `scale`, already rounded to `dtype`: op and reference see the same inputs.
inline Matrix random_matrix(int64_t rows, int64_t cols, uint64_t stream, DType dtype, double scale = 1,
                            double mean = 0) {
  const CounterRng rng(20240607, stream);
  Matrix m(rows, cols);
  for (size_t i = 0; i < m.v.size(); ++i) m.v[i] = stored(mean + scale * rng.normal(i), dtype);
  return m;
}

// d f / d at by central differences, f a scalar of all of `at` in double. One evaluation pair an element.
inline std::vector<double> central_difference(std::vector<double> at,
                                              const std::function<double(const std::vector<double>&)>& f,
                                              double h = 1e-6) {
  std::vector<double> gradient(at.size());
  for (size_t i = 0; i < at.size(); ++i) {
    const double x = at[i];
    at[i] = x + h;
    const double above = f(at);
    at[i] = x - h;
    const double below = f(at);
    at[i] = x;
    gradient[i] = (above - below) / (2 * h);
  }
  return gradient;
}

inline double dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// ---- memory with guards -------------------------------------------------------------------------------------------

// A view in memory of its own: 64-byte aligned first element, `row_gap` elements between rows, 256 bytes of a pattern
// on both sides and in the gaps. The elements start as NaN in float and bf16, so what is not written is seen.
class GuardedView {
 public:
  GuardedView(DType dtype, int64_t rows, int64_t cols, int64_t row_gap = 0)
      : bytes_(static_cast<size_t>(rows * (cols + row_gap) * size_of(dtype))),
        memory_(static_cast<std::byte*>(::operator new (bytes_ + 2 * kGuard + kAlign, std::align_val_t{kAlign}))),
        view_{memory_.get() + kGuard, dtype, rows, cols, cols + row_gap} {
    std::memset(memory_.get(), kPattern, bytes_ + 2 * kGuard + kAlign);
    for (int64_t r = 0; r < rows; ++r) std::memset(row(r), 0xff, row_bytes());
  }

  const TensorView& view() const { return view_; }
  void write(const Matrix& m) {
    for (int64_t r = 0; r < view_.rows; ++r) {
      for (int64_t c = 0; c < view_.cols; ++c) {
        if (view_.dtype == DType::kBF16) {
          view_.row<bf16>(r)[c] = to_bf16(static_cast<float>(m.at(r, c)));
        } else {
          view_.row<float>(r)[c] = static_cast<float>(m.at(r, c));
        }
      }
    }
  }
  Matrix read() const {
    Matrix m(view_.rows, view_.cols);
    for (int64_t r = 0; r < view_.rows; ++r) {
      for (int64_t c = 0; c < view_.cols; ++c) {
        m.at(r, c) = view_.dtype == DType::kBF16 ? static_cast<double>(to_float(view_.row<bf16>(r)[c]))
                                                 : static_cast<double>(view_.row<float>(r)[c]);
      }
    }
    return m;
  }
  // False when a byte outside the elements was written.
  bool intact() const {
    const std::byte* begin = memory_.get();
    const std::byte* end = begin + bytes_ + 2 * kGuard + kAlign;
    const auto clean = [](const std::byte* from, const std::byte* to) {
      return std::all_of(from, to, [](std::byte b) { return b == std::byte{kPattern}; });
    };
    const std::byte* at = begin;
    for (int64_t r = 0; r < view_.rows; ++r) {
      if (!clean(at, row(r))) return false;
      at = row(r) + row_bytes();
    }
    return clean(at, end);
  }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr size_t kAlign = 64;
  static constexpr unsigned char kPattern = 0xa5;
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{kAlign}); }
  };

  std::byte* row(int64_t r) const {
    return static_cast<std::byte*>(view_.data) + r * view_.stride * size_of(view_.dtype);
  }
  size_t row_bytes() const { return static_cast<size_t>(view_.cols * size_of(view_.dtype)); }

  size_t bytes_;
  std::unique_ptr<std::byte, Free> memory_;
  TensorView view_;
};

// ---- tokens -------------------------------------------------------------------------------------------------------

// Owner of what ops::Tokens points at. ids are 0, targets -1 until a test sets them.
struct Batch {
  std::vector<int32_t> ids, positions, targets, doc_starts;
  double loss_scale = 1;

  int64_t count() const { return static_cast<int64_t>(ids.size()); }
  Tokens tokens() const { return {count(), ids, positions, targets, doc_starts, loss_scale}; }
};

// Documents of these lengths one after the other, positions restarting in each.
inline Batch documents(std::span<const int64_t> lengths) {
  Batch batch;
  batch.doc_starts.push_back(0);
  for (const int64_t length : lengths) {
    for (int64_t i = 0; i < length; ++i) batch.positions.push_back(static_cast<int32_t>(i));
    batch.doc_starts.push_back(static_cast<int32_t>(batch.positions.size()));
  }
  batch.ids.assign(batch.positions.size(), 0);
  batch.targets.assign(batch.positions.size(), -1);
  return batch;
}
inline Batch documents(std::initializer_list<int64_t> lengths) {
  return documents(std::span<const int64_t>(lengths.begin(), lengths.size()));
}

// ---- instruction sets ---------------------------------------------------------------------------------------------

// Runs body() once for every instruction set that is compiled in and that this machine has, then sets the best again.
inline void for_each_target(const std::function<void()>& body) {
  const auto choose = [](int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  };
  int64_t rest = hwy::SupportedTargets() & HWY_TARGETS;
  EXPECT_NE(rest, 0);
  for (; rest != 0; rest &= rest - 1) {
    SCOPED_TRACE(hwy::TargetName(rest & -rest));
    choose(rest & -rest);
    body();
  }
  choose(0);
}

// ---- running an op ------------------------------------------------------------------------------------------------

struct Gradients {
  std::vector<Matrix> in;     // one an input; 0 x 0 where it was not asked for
  std::vector<Matrix> param;  // one a parameter, likewise
};

// What to add to: an entry that is present starts with these values and add_... is set; absent entries start as NaN.
struct Accumulate {
  std::vector<std::pair<int, Matrix>> in;
  std::vector<std::pair<int, Matrix>> param;
};

// Calls one op on guarded memory and fails the test where a guard was hit. Inputs, outputs and parameters have the
// dtypes the op declares for `activation`; parameters of two dimensions are [rows, cols], of one [1, n].
class OpRunner {
 public:
  struct Options {
    int threads = 1;
    int64_t row_gap = 0;                      // elements between the rows of inputs, outputs and their gradients
    std::vector<int> no_input_gradient = {};  // inputs whose in_grad view is empty (token ids have none)
  };

  OpRunner(const CpuOp& op, DType activation, const Batch& batch) : OpRunner(op, activation, batch, Options{}) {}
  OpRunner(const CpuOp& op, DType activation, const Batch& batch, const Options& options)
      : op_(op), activation_(activation), batch_(batch), options_(options), pool_(options.threads) {}

  std::vector<Matrix> forward(const std::vector<Matrix>& in, const std::vector<Matrix>& param) {
    std::deque<GuardedView> ins = filled(in, activation_, options_.row_gap);
    std::deque<GuardedView> params = filled(param, activation_, 0);
    std::deque<GuardedView> outs = output_views();
    const auto in_views = views(ins), param_views = views(params), out_views = views(outs);
    call([&](const CpuContext& context) {
      op_.forward(context, {.in = in_views, .param = param_views, .out = out_views});
    });
    check(ins, "input");
    check(params, "parameter");
    check(outs, "output");
    return values(outs);
  }

  // `out` are the op's own outputs (from forward()); only what backward_reads() names reaches the op.
  Gradients backward(const std::vector<Matrix>& in, const std::vector<Matrix>& param, const std::vector<Matrix>& out,
                     const std::vector<Matrix>& out_grad, const Accumulate& accumulate = {}) {
    std::deque<GuardedView> ins = filled(in, activation_, options_.row_gap);
    std::deque<GuardedView> params = filled(param, activation_, 0);
    std::deque<GuardedView> outs = output_views();
    for (size_t i = 0; i < out.size(); ++i) outs[i].write(out[i]);
    std::deque<GuardedView> out_grads = filled(out_grad, activation_, options_.row_gap);
    std::deque<GuardedView> in_grads, param_grads;
    for (const Matrix& m : in) in_grads.emplace_back(activation_, m.rows, m.cols, options_.row_gap);
    for (const Matrix& m : param) param_grads.emplace_back(DType::kF32, m.rows, m.cols);
    const auto add_in = start(in_grads, accumulate.in);
    const auto add_param = start(param_grads, accumulate.param);
    const graph::Reads reads = op_.backward_reads();
    const auto in_views = only(views(ins), reads.inputs), out_views = only(views(outs), reads.outputs);
    const auto param_views = views(params), out_grad_views = views(out_grads), param_grad_views = views(param_grads);
    auto in_grad_views = views(in_grads);
    for (const int i : options_.no_input_gradient) in_grad_views[static_cast<size_t>(i)] = {};
    call([&](const CpuContext& context) {
      op_.backward(context, {.in = in_views,
                             .param = param_views,
                             .out = out_views,
                             .out_grad = out_grad_views,
                             .in_grad = in_grad_views,
                             .add_in_grad = {add_in.get(), in.size()},
                             .param_grad = param_grad_views,
                             .add_param_grad = {add_param.get(), param.size()}});
    });
    check(ins, "input");
    check(params, "parameter");
    check(outs, "output");
    check(out_grads, "output gradient");
    check(in_grads, "input gradient");
    check(param_grads, "parameter gradient");
    Gradients result{values(in_grads), values(param_grads)};
    for (const int i : options_.no_input_gradient) result.in[static_cast<size_t>(i)] = Matrix();
    return result;
  }

  const LossSum& loss() const { return loss_; }  // of the last call

 private:
  using Flags = std::unique_ptr<bool[]>;

  static std::deque<GuardedView> filled(const std::vector<Matrix>& matrices, DType dtype, int64_t gap) {
    std::deque<GuardedView> result;
    for (const Matrix& m : matrices) result.emplace_back(dtype, m.rows, m.cols, gap).write(m);
    return result;
  }
  std::deque<GuardedView> output_views() const {
    std::deque<GuardedView> result;
    for (const graph::ValueSpec& spec : op_.outputs()) {
      result.emplace_back(graph::dtype_of(spec.element, activation_), batch_.count(), spec.width, options_.row_gap);
    }
    return result;
  }
  static std::vector<TensorView> views(const std::deque<GuardedView>& guarded) {
    std::vector<TensorView> result;
    for (const GuardedView& g : guarded) result.push_back(g.view());
    return result;
  }
  static std::vector<TensorView> only(std::vector<TensorView> all, const std::vector<int>& kept) {
    for (size_t i = 0; i < all.size(); ++i) {
      if (std::find(kept.begin(), kept.end(), static_cast<int>(i)) == kept.end()) all[i] = {};
    }
    return all;
  }
  static Flags start(std::deque<GuardedView>& gradients, const std::vector<std::pair<int, Matrix>>& values) {
    Flags flags = std::make_unique<bool[]>(gradients.size());
    for (const auto& [index, matrix] : values) {
      gradients[static_cast<size_t>(index)].write(matrix);
      flags[static_cast<size_t>(index)] = true;
    }
    return flags;
  }
  static std::vector<Matrix> values(const std::deque<GuardedView>& guarded) {
    std::vector<Matrix> result;
    for (const GuardedView& g : guarded) result.push_back(g.read());
    return result;
  }
  static void check(const std::deque<GuardedView>& guarded, const char* what) {
    for (size_t i = 0; i < guarded.size(); ++i) {
      EXPECT_TRUE(guarded[i].intact()) << "written outside of " << what << " " << i;
    }
  }
  void call(const std::function<void(const CpuContext&)>& body) {
    const int64_t count = batch_.count();
    const int64_t documents = std::max<int64_t>(1, static_cast<int64_t>(batch_.doc_starts.size()) - 1);
    const graph::Dims dims{count, std::max<int64_t>(1, count / documents), size_of(activation_)};
    const GuardedView scratch(DType::kU8, 1, op_.cpu_scratch_bytes(dims, options_.threads));
    const Tokens tokens = batch_.tokens();
    loss_ = {};
    body({.pool = &pool_,
          .activation = activation_,
          .tokens = &tokens,
          .scratch = {scratch.view().row<std::byte>(0), static_cast<size_t>(scratch.view().cols)},
          .loss = &loss_});
    EXPECT_TRUE(scratch.intact()) << "written outside of the scratch memory";
  }

  const CpuOp& op_;
  DType activation_;
  Batch batch_;
  Options options_;
  ThreadPool pool_;
  LossSum loss_;
};

}  // namespace lazytrain::ops::testing
