#include "ops/rmsnorm.h"

#include <algorithm>
#include <cmath>

#include "base/arith.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rmsnorm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lazytrain::ops::rmsnorm::HWY_NAMESPACE {
using namespace lazytrain::ops::vec::HWY_NAMESPACE;

// Memory bound: moves 4 H bytes a token in bf16 (x is read twice, the second time from L1).
template <typename T>
void ForwardRows(const ForwardArgs& args, float eps, int64_t begin, int64_t end) {
  const DF d;
  const TensorView& x = args.in[0];
  const T* w = args.param[0].row<T>(0);
  for (int64_t t = begin; t < end; ++t) {
    const T* in = x.row<T>(t);
    T* out = args.out[0].row<T>(t);
    VF sum = hn::Zero(d);
    for_columns(x.cols, [&](int64_t c, int64_t n) {
      const VF v = load_part(in + c, n);
      sum = hn::MulAdd(v, v, sum);
    });
    const float mean = hn::GetLane(hn::SumOfLanes(d, sum)) / static_cast<float>(x.cols);
    const float rstd = 1.0f / std::sqrt(mean + eps);
    *args.out[1].row<float>(t) = rstd;
    const VF r = hn::Set(d, rstd);
    for_columns(x.cols, [&](int64_t c, int64_t n) {
      const VF normal = rounded<T>(hn::Mul(load_part(in + c, n), r));
      store_part(hn::Mul(normal, load_part(w + c, n)), out + c, n);
    });
  }
}

// dx of one row.
template <typename T>
HWY_INLINE void BackwardRow(const T* x, const T* w, const T* dy, float rstd, T* dx, bool add, int64_t cols) {
  const DF d;
  const VF r = hn::Set(d, rstd);
  VF sum = hn::Zero(d);
  for_columns(cols, [&](int64_t c, int64_t n) {
    const VF weighted = hn::Mul(load_part(w + c, n), load_part(dy + c, n));
    sum = hn::MulAdd(weighted, hn::Mul(load_part(x + c, n), r), sum);
  });
  const VF mean = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, sum)) / static_cast<float>(cols));
  for_columns(cols, [&](int64_t c, int64_t n) {
    const VF weighted = hn::Mul(load_part(w + c, n), load_part(dy + c, n));
    const VF normal = hn::Mul(load_part(x + c, n), r);
    VF g = hn::Mul(r, hn::NegMulAdd(normal, mean, weighted));
    if (add) g = hn::Add(g, load_part(dx + c, n));
    store_part(g, dx + c, n);
  });
}

// Rows [begin, end) of dx, and their sum for dw into `partial` [H] unless it is null.
template <typename T>
void BackwardRows(const BackwardArgs& args, int64_t begin, int64_t end, float* partial) {
  const TensorView& x = args.in[0];
  if (partial != nullptr) std::fill_n(partial, x.cols, 0.0f);
  for (int64_t t = begin; t < end; ++t) {
    const float rstd = *args.out[1].row<float>(t);
    const T* dy = args.out_grad[0].row<T>(t);
    const T* in = x.row<T>(t);
    if (!args.in_grad[0].empty()) {
      BackwardRow(in, args.param[0].row<T>(0), dy, rstd, args.in_grad[0].row<T>(t), args.add_in_grad[0], x.cols);
    }
    if (partial == nullptr) continue;
    const VF r = hn::Set(DF(), rstd);
    for_columns(x.cols, [&](int64_t c, int64_t n) {
      const VF normal = hn::Mul(load_part(in + c, n), r);
      store_part(hn::MulAdd(load_part(dy + c, n), normal, load_part(partial + c, n)), partial + c, n);
    });
  }
}

void Forward(const ForwardArgs& args, float eps, int64_t begin, int64_t end) {
  if (args.in[0].dtype == DType::kBF16) {
    ForwardRows<bf16>(args, eps, begin, end);
  } else {
    ForwardRows<float>(args, eps, begin, end);
  }
}

void Backward(const BackwardArgs& args, int64_t begin, int64_t end, float* partial) {
  if (args.in[0].dtype == DType::kBF16) {
    BackwardRows<bf16>(args, begin, end, partial);
  } else {
    BackwardRows<float>(args, begin, end, partial);
  }
}

// sum[c] (+)= the partials of columns [begin, end), block after block.
void SumBlocks(const float* partial, int64_t blocks, int64_t stride, float* sum, bool add, int64_t begin, int64_t end) {
  for_columns(end - begin, [&](int64_t c, int64_t n) {
    VF total = load_part(partial + begin + c, n);
    for (int64_t b = 1; b < blocks; ++b) total = hn::Add(total, load_part(partial + b * stride + begin + c, n));
    if (add) total = hn::Add(total, load_part(sum + begin + c, n));
    store_part(total, sum + begin + c, n);
  });
}

}  // namespace lazytrain::ops::rmsnorm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lazytrain::ops {
namespace rmsnorm {
HWY_EXPORT(Forward);
HWY_EXPORT(Backward);
HWY_EXPORT(SumBlocks);
}  // namespace rmsnorm

namespace {
constexpr int64_t kMinBlockRows = 16;
constexpr int64_t kMaxBlocks = 64;
int64_t blocks_of(int64_t tokens) { return std::clamp<int64_t>(tokens / kMinBlockRows, 1, kMaxBlocks); }
int64_t partial_stride(int64_t width) { return align_up(width, 16); }
}  // namespace

std::vector<graph::ValueSpec> RmsNorm::outputs() const {
  return {{.name = "out", .width = width_}, {.name = "rstd", .width = 1, .element = graph::Element::kF32}};
}

std::vector<graph::ParameterSpec> RmsNorm::parameters() const {
  return {{.name = "weight", .shape = {width_}, .init = graph::Init::kOnes}};
}

graph::Work RmsNorm::forward_work(const graph::Dims& dims) const {
  const auto t = static_cast<double>(dims.tokens), h = static_cast<double>(width_);
  const auto element = static_cast<double>(dims.activation_bytes);
  return {.flops = 4 * t * h, .bytes = element * (2 * t * h + h) + 4 * t};
}

graph::Work RmsNorm::backward_work(const graph::Dims& dims) const {
  const auto t = static_cast<double>(dims.tokens), h = static_cast<double>(width_);
  const auto element = static_cast<double>(dims.activation_bytes);
  return {.flops = 10 * t * h, .bytes = element * (3 * t * h + h) + 4 * t + 4 * h};
}

int64_t RmsNorm::cpu_scratch_bytes(const graph::Dims& dims, int) const {
  return blocks_of(dims.tokens) * partial_stride(width_) * size_of(DType::kF32);
}

void RmsNorm::forward(const CpuContext& context, const ForwardArgs& args) const {
  context.pool->parallel_for(args.in[0].rows, kMinBlockRows, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(rmsnorm::Forward)(args, eps_, begin, end);
  });
}

void RmsNorm::backward(const CpuContext& context, const BackwardArgs& args) const {
  const int64_t tokens = args.in[0].rows;
  const int64_t blocks = blocks_of(tokens);
  const int64_t stride = partial_stride(width_);
  const bool want_weight = !args.param_grad[0].empty();
  auto* partials = reinterpret_cast<float*>(context.scratch.data());
  context.pool->run(blocks, [&](int64_t block) {
    const Part rows = part_of(tokens, blocks, block);
    HWY_DYNAMIC_DISPATCH(rmsnorm::Backward)
    (args, rows.begin, rows.end, want_weight ? partials + block * stride : nullptr);
  });
  if (!want_weight) return;
  float* dw = args.param_grad[0].row<float>(0);
  context.pool->parallel_for(width_, 64, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(rmsnorm::SumBlocks)(partials, blocks, stride, dw, args.add_param_grad[0], begin, end);
  });
}

}  // namespace lazytrain::ops
#endif  // HWY_ONCE
