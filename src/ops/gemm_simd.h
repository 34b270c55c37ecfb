// Vector kernels around the matrix products, compiled once per instruction set (Highway). Strides count elements.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace lazytrain::ops::simd {

// to[r, c] = float(from[r, c]); exact.
void widen(const bf16* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows, int64_t cols);

// to[r, c] = nearest-even bf16 of from[r, c]; a NaN stays one.
void round_to_bf16(const float* from, int64_t from_stride, bf16* to, int64_t to_stride, int64_t rows, int64_t cols);

// c[i, j] = init[i, j] + sum_k a[i, k] b[j, k] for few rows i: one pass over B, so bound by the memory it streams from.
// A, C fp32, C holds init (or is overwritten unless `accumulate`); B is [n, k] fp32 or bf16.
void few_rows(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_stride, const float* b, int64_t b_stride,
              float* c, int64_t c_stride, bool accumulate);
void few_rows(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_stride, const bf16* b, int64_t b_stride,
              float* c, int64_t c_stride, bool accumulate);

// sum[c] (+)= sum_r x[r, c]; rows are added in order, in runs of 64 that are then added in order.
void column_sums(const float* x, int64_t stride, int64_t rows, int64_t cols, float* sum, bool accumulate);
void column_sums(const bf16* x, int64_t stride, int64_t rows, int64_t cols, float* sum, bool accumulate);

// to[c] += from[c].
void add_row(const float* from, float* to, int64_t cols);
void add_row(const bf16* from, float* to, int64_t cols);

}  // namespace lazytrain::ops::simd
