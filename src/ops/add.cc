#include "ops/add.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/add.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lazytrain::ops::add::HWY_NAMESPACE {
using namespace lazytrain::ops::vec::HWY_NAMESPACE;

template <typename T>
void SumRows(const TensorView& a, const TensorView& b, const TensorView& out, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    for_columns(out.cols, [&](int64_t c, int64_t n) {
      store_part(hn::Add(load_part(a.row<T>(t) + c, n), load_part(b.row<T>(t) + c, n)), out.row<T>(t) + c, n);
    });
  }
}

// out = a + b; out may be a or b.
void Sum(const TensorView& a, const TensorView& b, const TensorView& out, int64_t begin, int64_t end) {
  if (out.dtype == DType::kBF16) {
    SumRows<bf16>(a, b, out, begin, end);
  } else {
    SumRows<float>(a, b, out, begin, end);
  }
}

}  // namespace lazytrain::ops::add::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lazytrain::ops {
namespace add {
HWY_EXPORT(Sum);
}  // namespace add

namespace {
void sum(const CpuContext& context, const TensorView& a, const TensorView& b, const TensorView& out) {
  context.pool->parallel_for(out.rows, 16, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(add::Sum)(a, b, out, begin, end);
  });
}
}  // namespace

graph::Work Add::forward_work(const graph::Dims& dims) const {
  const double elements = static_cast<double>(dims.tokens) * static_cast<double>(width_);
  return {.flops = elements, .bytes = 3 * elements * static_cast<double>(dims.activation_bytes)};
}

// What a call of backward() moves; none is made where the gradient is passed through.
graph::Work Add::backward_work(const graph::Dims& dims) const {
  const double elements = static_cast<double>(dims.tokens) * static_cast<double>(width_);
  return {.flops = 0, .bytes = 3 * elements * static_cast<double>(dims.activation_bytes)};
}

void Add::forward(const CpuContext& context, const ForwardArgs& args) const {
  sum(context, args.in[0], args.in[1], args.out[0]);
}

void Add::backward(const CpuContext& context, const BackwardArgs& args) const {
  const TensorView& dy = args.out_grad[0];
  for (size_t i = 0; i < 2; ++i) {
    const TensorView& dx = args.in_grad[i];
    if (dx.empty()) continue;
    if (args.add_in_grad[i]) {
      sum(context, dx, dy, dx);
    } else if (dx.data != dy.data) {
      const auto row_bytes = static_cast<size_t>(dy.cols * size_of(dy.dtype));
      context.pool->parallel_for(dy.rows, 16, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          std::memcpy(dx.slice_rows(t, 1).data, dy.slice_rows(t, 1).data, row_bytes);
        }
      });
    }
  }
}

}  // namespace lazytrain::ops
#endif  // HWY_ONCE
