#include <algorithm>
#include <stdexcept>

#include "cuda/kernel.h"
#include "cuda/math.h"
#include "ops/cuda_kernels.h"

namespace lazytrain::ops::on_cuda {
namespace {

using namespace lazytrain::cuda;

struct Frequencies {
  float v[kMostFrequencies];
  int half;  // how many
};

template <typename T>
struct RotaryRows {
  Rows<const T> x;
  Rows<T> y;
  const int32_t* positions;
  int64_t heads, head_dim;
  float scaling;
  bool inverse, add, aligned;
};

template <typename T>
__device__ void put(Lanes<T> v, T* to, int n, const RotaryRows<T>& call) {
  if (call.add) {
    const Lanes<T> before = load_lanes(to, n, call.aligned);
    for (int i = 0; i < kLanes<T>; ++i) v.v[i] += before.v[i];
  }
  store_lanes(v, to, n, call.aligned);
}

// A block a token: its cos and sin once for all heads, in shared memory. Moves 4 heads d bytes a token in bf16: 80 % of
// the memory rate.
template <typename T>
__global__ void rotary_kernel(RotaryRows<T> call, Frequencies frequencies) {
  const int half = frequencies.half;
  float* const cosines = shared_memory<float>();
  float* const sines = cosines + half;
  const auto position = static_cast<float>(call.positions[block_x()]);
  for (int j = thread_x(); j < half; j += block_threads()) {
    float cosine, sine;
    cos_sin(position * frequencies.v[j], cosine, sine);
    cosines[j] = cosine * call.scaling;
    sines[j] = sine * (call.inverse ? -call.scaling : call.scaling);
  }
  sync_threads();
  const T* x = call.x.row(block_x());
  T* y = call.y.row(block_x());
  const int64_t vectors = (half + kLanes<T> - 1) / kLanes<T>;
  for (int64_t item = thread_x(); item < call.heads * vectors; item += block_threads()) {
    const int64_t c = item % vectors * kLanes<T>, low_at = item / vectors * call.head_dim + c, high_at = low_at + half;
    const int n = lanes_at<T>(c, half);
    const Lanes<T> low = load_lanes(x + low_at, n, call.aligned), high = load_lanes(x + high_at, n, call.aligned);
    Lanes<T> new_low, new_high;
    for (int i = 0; i < kLanes<T>; ++i) {
      const float cosine = i < n ? cosines[c + i] : 0.0f, sine = i < n ? sines[c + i] : 0.0f;
      new_low.v[i] = fmaf(-high.v[i], sine, low.v[i] * cosine);
      new_high.v[i] = fmaf(low.v[i], sine, high.v[i] * cosine);
    }
    put(new_low, y + low_at, n, call);
    put(new_high, y + high_at, n, call);
  }
  const int64_t rest = call.head_dim - 2 * half;
  const int64_t rest_vectors = (rest + kLanes<T> - 1) / kLanes<T>;
  for (int64_t item = thread_x(); item < call.heads * rest_vectors; item += block_threads()) {
    const int64_t c = item % rest_vectors * kLanes<T>, at = item / rest_vectors * call.head_dim + 2 * half + c;
    const int n = lanes_at<T>(c, rest);
    put(load_lanes(x + at, n, call.aligned), y + at, n, call);
  }
}

}  // namespace

void rotary(Stream& stream, const RotaryCall& call) {
  const auto half = static_cast<int64_t>(call.inv_freq.size());
  if (half > kMostFrequencies) throw std::invalid_argument("rotary: more frequencies than go with a launch");
  Frequencies frequencies{};
  std::copy(call.inv_freq.begin(), call.inv_freq.end(), frequencies.v);
  frequencies.half = static_cast<int>(half);
  for_activation(call.x.dtype, [&]<typename T>(T) {
    const bool whole = half % kLanes<T> == 0 && call.head_dim % kLanes<T> == 0;
    const RotaryRows<T> rows{.x = rows_of<const T>(call.x),
                             .y = rows_of<T>(call.y),
                             .positions = call.positions,
                             .heads = call.heads,
                             .head_dim = call.head_dim,
                             .scaling = call.scaling,
                             .inverse = call.inverse,
                             .add = call.add,
                             .aligned = whole && all_aligned(call.x, call.y)};
    launch(&rotary_kernel<T>, {call.x.rows, 1}, threads_for<T>(call.heads * half, 256), 8 * half, stream, rows,
           frequencies);
  });
}

}  // namespace lazytrain::ops::on_cuda
