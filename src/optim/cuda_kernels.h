// Gradient sums and AdamW on a CUDA device, for state that lives there: the bits of grad_norm.h and adamw.h. Everything
// a pointer leads to lies on the device; work is put into the stream and the functions return at once. Arrays that
// begin at multiples of 16 bytes go by 128-bit accesses.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "cuda/stream.h"
#include "optim/adamw8_kernel.h"
#include "optim/adamw_kernel.h"
#include "optim/grad_norm.h"

namespace lazytrain::optim::on_cuda {

using cuda::Stream;

// A gradient, bf16 or fp32.
struct Gradient {
  const void* data = nullptr;
  DType dtype = DType::kBF16;
};

void adamw_update(Stream& stream, const AdamWConstants& constants, const AdamWArrays& arrays, const Gradient& gradient,
                  int64_t n);
// Blocks of a power of two of elements, as optimizer.state has them; others are an invalid_argument.
void adamw8_update(Stream& stream, const AdamW8Constants& constants, bf16* hi, int16_t* lo, const Moments8& moments,
                   const Gradient& gradient, int64_t n);

// *total = the sum of squares in the order of grad_norm.h; not finite when a value is not. `block_sums`
// [sum_block_count(n)].
constexpr int64_t sum_block_count(int64_t n) { return (n + kSumBlock - 1) / kSumBlock; }
void sum_of_squares(Stream& stream, const Gradient& values, int64_t n, double* block_sums, double* total);
// The same of the values rounded to bf16, which go to `out`.
void round_to_bf16_and_sum(Stream& stream, const float* in, bf16* out, int64_t n, double* block_sums, double* total);
// The first 2 n bytes of `data` become the n floats rounded to bf16.
void round_to_bf16_in_place(Stream& stream, float* data, int64_t n);

}  // namespace lazytrain::optim::on_cuda

namespace lazytrain::optim {

// These functions as the plugin hands them over.
struct CudaKernels {
  decltype(&on_cuda::adamw_update) adamw_update;
  decltype(&on_cuda::adamw8_update) adamw8_update;
  decltype(&on_cuda::sum_of_squares) sum_of_squares;
  decltype(&on_cuda::round_to_bf16_and_sum) round_to_bf16_and_sum;
  decltype(&on_cuda::round_to_bf16_in_place) round_to_bf16_in_place;
};
const CudaKernels& cuda_kernels();

}  // namespace lazytrain::optim
