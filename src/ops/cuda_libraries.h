// Matrix products on a CUDA device, which a library does better than own kernels (cuBLASLt). Views lie on the device;
// work is put into the stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/stream.h"
#include "ops/gemm.h"

namespace lazytrain::ops {

// The same product `count` times, each matrix so many elements behind the one before.
struct GemmBatch {
  int64_t count = 1;
  int64_t a_step = 0;
  int64_t b_step = 0;
  int64_t c_step = 0;
};

class CudaLibraries {
 public:
  virtual ~CudaLibraries() = default;

  // C (+)= op(A) op(B) (+ bias), fp32 sums, one rounding (ops/gemm.h), the same bits for the same shapes, strides and
  // alignment. `scratch` has as many bytes as asked for a product of that size.
  virtual int64_t gemm_scratch_bytes(const GemmSize& size) = 0;
  virtual void gemm(cuda::Stream& stream, std::span<std::byte> scratch, const Gemm& product,
                    const GemmBatch& batch) = 0;
};

}  // namespace lazytrain::ops
