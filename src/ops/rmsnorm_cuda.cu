#include "cuda/kernel.h"
#include "ops/cuda_kernels.h"
#include "ops/row_parts_cuda.h"

namespace lazytrain::ops::on_cuda {
namespace {

using namespace lazytrain::cuda;

constexpr int kMostThreads = 512;
constexpr int kSpace = kMostThreads / kWarp;  // of block_sum

// A block a row. Moves 4 H bytes a token in bf16 (the second read of x comes from L1): 85 % of the memory rate.
template <typename T>
__global__ void forward_kernel(Rows<const T> x, const T* w, Rows<T> out, Rows<float> rstds, int64_t cols, float eps,
                               bool aligned) {
  float* const space = shared_memory<float>();
  const T* in = x.row(block_x());
  const int step = block_threads() * kLanes<T>;
  float sum = 0;
  for (int64_t c = thread_x() * kLanes<T>; c < cols; c += step) {
    const Lanes<T> v = load_lanes(in + c, lanes_at<T>(c, cols), aligned);
    for (int i = 0; i < kLanes<T>; ++i) sum = fmaf(v.v[i], v.v[i], sum);
  }
  const float rstd = 1.0f / sqrtf(block_sum(sum, space) / static_cast<float>(cols) + eps);
  if (thread_x() == 0) *rstds.row(block_x()) = rstd;
  T* to = out.row(block_x());
  for (int64_t c = thread_x() * kLanes<T>; c < cols; c += step) {
    const int n = lanes_at<T>(c, cols);
    Lanes<T> v = load_lanes(in + c, n, aligned);
    const Lanes<T> weight = load_lanes(w + c, n, aligned);
    for (int i = 0; i < kLanes<T>; ++i) v.v[i] = stored<T>(v.v[i] * rstd) * weight.v[i];
    store_lanes(v, to + c, n, aligned);
  }
}

template <typename T>
struct BackwardRows {
  Rows<const T> x, dy;
  const T* w;
  Rows<const float> rstd;
  Rows<T> dx;
  bool add_dx;
  int64_t tokens, cols;
  bool aligned;
};

// dx of one row; the threads of the block share its mean.
template <typename T>
__device__ void row_gradient(const BackwardRows<T>& call, int64_t t, float* space) {
  const T* x = call.x.row(t);
  const T* dy = call.dy.row(t);
  const float r = *call.rstd.row(t);
  const int step = block_threads() * kLanes<T>;
  float sum = 0;
  for (int64_t c = thread_x() * kLanes<T>; c < call.cols; c += step) {
    const int n = lanes_at<T>(c, call.cols);
    const Lanes<T> in = load_lanes(x + c, n, call.aligned), g = load_lanes(dy + c, n, call.aligned),
                   w = load_lanes(call.w + c, n, call.aligned);
    for (int i = 0; i < kLanes<T>; ++i) sum = fmaf(w.v[i] * g.v[i], in.v[i] * r, sum);
  }
  const float mean = block_sum(sum, space) / static_cast<float>(call.cols);
  T* dx = call.dx.row(t);
  for (int64_t c = thread_x() * kLanes<T>; c < call.cols; c += step) {
    const int n = lanes_at<T>(c, call.cols);
    const Lanes<T> in = load_lanes(x + c, n, call.aligned), g = load_lanes(dy + c, n, call.aligned),
                   w = load_lanes(call.w + c, n, call.aligned);
    Lanes<T> result;
    for (int i = 0; i < kLanes<T>; ++i) result.v[i] = r * fmaf(-(in.v[i] * r), mean, w.v[i] * g.v[i]);
    if (call.add_dx) {
      const Lanes<T> before = load_lanes(dx + c, n, call.aligned);
      for (int i = 0; i < kLanes<T>; ++i) result.v[i] += before.v[i];
    }
    store_lanes(result, dx + c, n, call.aligned);
  }
}

// A block takes a part of the rows and keeps its sums of dw in shared memory: a thread its own columns. Moves 6 H bytes
// a token in bf16, what is read twice from L1: 75 % of the memory rate.
template <typename T>
__global__ void backward_kernel(BackwardRows<T> call, float* partials, int64_t stride) {
  float* const space = shared_memory<float>();
  float* const dw = space + kSpace;
  const int step = block_threads() * kLanes<T>;
  const bool want_weight = partials != nullptr;
  for (int64_t c = thread_x() * kLanes<T>; want_weight && c < call.cols; c += step) {
    for (int i = 0; i < lanes_at<T>(c, call.cols); ++i) dw[c + i] = 0;
  }
  const RowPart part = row_part(call.tokens);
  for (int64_t t = part.begin; t < part.end; ++t) {
    if (call.dx) row_gradient(call, t, space);
    if (!want_weight) continue;
    const T* x = call.x.row(t);
    const T* dy = call.dy.row(t);
    const float r = *call.rstd.row(t);
    for (int64_t c = thread_x() * kLanes<T>; c < call.cols; c += step) {
      const int n = lanes_at<T>(c, call.cols);
      const Lanes<T> in = load_lanes(x + c, n, call.aligned), g = load_lanes(dy + c, n, call.aligned);
      for (int i = 0; i < n; ++i) dw[c + i] = fmaf(g.v[i], in.v[i] * r, dw[c + i]);
    }
  }
  float* to = partials + block_x() * stride;
  for (int64_t c = thread_x() * kLanes<T>; want_weight && c < call.cols; c += step) {
    for (int i = 0; i < lanes_at<T>(c, call.cols); ++i) to[c + i] = dw[c + i];
  }
}

}  // namespace

void rmsnorm_forward(Stream& stream, const TensorView& x, const TensorView& w, float eps, const TensorView& out,
                     const TensorView& rstd) {
  for_activation(x.dtype, [&]<typename T>(T) {
    launch(&forward_kernel<T>, {x.rows, 1}, threads_for<T>(x.cols, kMostThreads), kSpace * 4, stream,
           rows_of<const T>(x), static_cast<const T*>(w.data), rows_of<T>(out), rows_of<float>(rstd), x.cols, eps,
           all_aligned(x, w, out));
  });
}

void rmsnorm_backward(Stream& stream, const RmsNormBackward& call) {
  const int64_t tokens = call.x.rows, width = call.x.cols, parts = row_parts(tokens);
  const bool want_weight = !call.dw.empty();
  for_activation(call.x.dtype, [&]<typename T>(T) {
    const BackwardRows<T> rows{.x = rows_of<const T>(call.x),
                               .dy = rows_of<const T>(call.dy),
                               .w = static_cast<const T*>(call.w.data),
                               .rstd = rows_of<const float>(call.rstd),
                               .dx = rows_of<T>(call.dx),
                               .add_dx = call.add_dx,
                               .tokens = tokens,
                               .cols = width,
                               .aligned = all_aligned(call.x, call.w, call.dy, call.dx)};
    launch(&backward_kernel<T>, {parts, 1}, threads_for<T>(width, kMostThreads),
           4 * (kSpace + (want_weight ? width : 0)), stream, rows, want_weight ? call.scratch : nullptr, width);
  });
  if (want_weight) sum_parts(stream, call.scratch, parts, width, static_cast<float*>(call.dw.data), call.add_dw);
}

}  // namespace lazytrain::ops::on_cuda
