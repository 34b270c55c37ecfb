// Sums over the rows of a matrix, for gradients of weights that all tokens share: rows are cut into parts that depend
// on their number alone, a block sums a part, and the parts are added in their order.
#pragma once

#include "cuda/kernel.h"
#include "ops/cuda_kernels.h"

namespace lazytrain::ops::on_cuda {

// The rows of the part that is block_x()'s.
struct RowPart {
  int64_t begin, end;
};
__device__ inline RowPart row_part(int64_t rows) {
  const int64_t parts = row_parts(rows);
  return {rows * cuda::block_x() / parts, rows * (cuda::block_x() + 1) / parts};
}

// sums[c] (+)= the parts' values of column c, part after part. parts [parts, cols] fp32.
void sum_parts(cuda::Stream& stream, const float* parts, int64_t count, int64_t cols, float* sums, bool add);

}  // namespace lazytrain::ops::on_cuda
