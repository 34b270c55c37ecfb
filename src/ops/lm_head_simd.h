// Vector kernels of the softmax over the vocabulary, compiled once per instruction set (Highway). exp is Highway's
// (contrib/math: at most 1 ulp) on x <= 0; element by element it gives the same bits on every set that has fused
// multiply-add, while sums follow the vector length.
#pragma once

#include <cstdint>

namespace lazytrain::ops::simd {

// Running maximum and sum of exp(logit - maximum) of one row; sum in double across tiles, fp32 lanes within one.
struct RowStats {
  float max;
  double sum;
};

// Takes the `n` >= 1 logits of one tile into `stats`. NaN and +inf logits end as a NaN sum.
void add_to_stats(const float* logits, int64_t n, RowStats& stats);
// The statistics of both.
RowStats merge(const RowStats& a, const RowStats& b);

// x[i] = exp(x[i] - max) * factor, in place.
void scaled_exp(float* x, int64_t n, float max, float factor);

}  // namespace lazytrain::ops::simd
