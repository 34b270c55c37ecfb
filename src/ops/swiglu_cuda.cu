#include "cuda/kernel.h"
#include "cuda/math.h"
#include "ops/cuda_kernels.h"
#include "ops/elementwise_cuda.h"

namespace lazytrain::ops::on_cuda {
namespace {

using namespace lazytrain::cuda;

// Moves 6 I bytes a token in bf16 for about 35 instructions an element: 75 % of the memory rate, near the limit of the
// instructions too.
template <typename T>
__global__ void forward_kernel(Rows<const T> gate, Rows<const T> up, Rows<T> out, int64_t cols, bool aligned) {
  const Place at = place<T>(cols);
  if (at.n <= 0) return;
  Lanes<T> g = load_lanes(gate.row(at.row) + at.column, at.n, aligned);
  const Lanes<T> u = load_lanes(up.row(at.row) + at.column, at.n, aligned);
  for (int i = 0; i < kLanes<T>; ++i) g.v[i] = g.v[i] * sigmoid(g.v[i]) * u.v[i];
  store_lanes(g, out.row(at.row) + at.column, at.n, aligned);
}

template <typename T>
struct Gradient {
  Rows<T> to;
  bool add;
};

template <typename T>
__device__ void put(Lanes<T> v, const Gradient<T>& gradient, const Place& at, bool aligned) {
  if (!gradient.to) return;
  T* to = gradient.to.row(at.row) + at.column;
  if (gradient.add) {
    const Lanes<T> before = load_lanes(to, at.n, aligned);
    for (int i = 0; i < kLanes<T>; ++i) v.v[i] += before.v[i];
  }
  store_lanes(v, to, at.n, aligned);
}

// Moves 10 I bytes a token in bf16: 85 % of the memory rate.
template <typename T>
__global__ void backward_kernel(Rows<const T> gate, Rows<const T> up, Rows<const T> dy, Gradient<T> dgate,
                                Gradient<T> dup, int64_t cols, bool aligned) {
  const Place at = place<T>(cols);
  if (at.n <= 0) return;
  const Lanes<T> g = load_lanes(gate.row(at.row) + at.column, at.n, aligned);
  const Lanes<T> u = load_lanes(up.row(at.row) + at.column, at.n, aligned);
  const Lanes<T> d = load_lanes(dy.row(at.row) + at.column, at.n, aligned);
  Lanes<T> of_gate, of_up;
  for (int i = 0; i < kLanes<T>; ++i) {
    const float s = sigmoid(g.v[i]);
    const float slope = s * fmaf(g.v[i], 1.0f - s, 1.0f);
    of_gate.v[i] = d.v[i] * u.v[i] * slope;
    of_up.v[i] = d.v[i] * (g.v[i] * s);
  }
  put(of_gate, dgate, at, aligned);
  put(of_up, dup, at, aligned);
}

}  // namespace

void swiglu_forward(Stream& stream, const TensorView& gate, const TensorView& up, const TensorView& out) {
  for_activation(out.dtype, [&]<typename T>(T) {
    launch_elements<T>(&forward_kernel<T>, out.rows, out.cols, stream, rows_of<const T>(gate), rows_of<const T>(up),
                       rows_of<T>(out), out.cols, all_aligned(gate, up, out));
  });
}

void swiglu_backward(Stream& stream, const SwiGluBackward& call) {
  for_activation(call.dy.dtype, [&]<typename T>(T) {
    const Gradient<T> dgate{rows_of<T>(call.dgate), call.add_dgate}, dup{rows_of<T>(call.dup), call.add_dup};
    launch_elements<T>(&backward_kernel<T>, call.dy.rows, call.dy.cols, stream, rows_of<const T>(call.gate),
                       rows_of<const T>(call.up), rows_of<const T>(call.dy), dgate, dup, call.dy.cols,
                       all_aligned(call.gate, call.up, call.dy, call.dgate, call.dup));
  });
}

}  // namespace lazytrain::ops::on_cuda
