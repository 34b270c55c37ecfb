// Maximum and sum of exponentials of a row that a block reads once.
#pragma once

#include <limits>

#include "cuda/kernel.h"
#include "cuda/math.h"

namespace lazytrain::cuda {

struct RowStatistics {
  float max;
  double sum;  // of e^(x - max)
};

// Of a thread's elements: the maximum so far, and the sum of exponentials below it in fp32.
struct RunningSoftmax {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;

  __device__ void take(const Lanes<float>& v, int n) {
    float most = max;
    for (int i = 0; i < kLanes<float>; ++i) {
      if (i < n) most = fmaxf(most, v.v[i]);
    }
    if (most == -std::numeric_limits<float>::infinity()) {  // nothing yet, or a NaN, which no maximum shows
      for (int i = 0; i < kLanes<float>; ++i) {
        if (i < n && v.v[i] != v.v[i]) sum = v.v[i];
      }
      return;
    }
    if (most > max) sum *= exp_of(max - most);
    max = most;
    for (int i = 0; i < kLanes<float>; ++i) {
      if (i < n) sum += exp_of(v.v[i] - max);
    }
  }
};

// Of x[0, count) * scale, the same in every thread. `space`: a double for each warp in shared memory. What is not
// finite makes the sum so.
__device__ inline RowStatistics row_statistics(const float* x, int64_t count, float scale, bool aligned,
                                               double* space) {
  RunningSoftmax own;
  for (int64_t c = thread_x() * kLanes<float>; c < count; c += block_threads() * kLanes<float>) {
    const int n = lanes_at<float>(c, count);
    Lanes<float> v = load_lanes(x + c, n, aligned);
    for (int i = 0; i < kLanes<float>; ++i) v.v[i] *= scale;
    own.take(v, n);
  }
  const float max = block_max(own.max, reinterpret_cast<float*>(space));
  const double sum = own.sum == 0 ? 0.0 : static_cast<double>(own.sum) * exp_of(own.max - max);
  return {max, block_sum(sum, space)};
}

// v in the place of a row of floats, as T: fp32 where they stood, bf16 from the begin of the row on. What is written
// never reaches beyond what was read before the last barrier, when tiles ascend.
template <typename T>
__device__ void store_in_place(const Lanes<float>& v, T* to, int n, bool aligned) {
  if constexpr (sizeof(T) == 4) {
    store_lanes(v, to, n, aligned);
  } else if (aligned && n == kLanes<float>) {
    store_64({{two_bf16(v.v[0], v.v[1]), two_bf16(v.v[2], v.v[3])}}, to);
  } else {
    for (int i = 0; i < kLanes<float>; ++i) {
      if (i < n) to[i] = narrowed<T>(v.v[i]);
    }
  }
}

}  // namespace lazytrain::cuda
