// The one place that talks to oneDNN: sequential products on the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lazytrain::ops::onednn {

// One operand or result: element (r, c) of op(X) stands at data[r * stride + c], or [c * stride + r] if transposed.
struct Matrix {
  void* data;
  int64_t stride;
  bool transposed = false;
};

// C[m,n] = beta C + op(A) op(B), all fp32, beta 0 or 1. No primitive is created and no scratch is taken.
void sgemm(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, const Matrix& c, bool accumulate);

// The same with bf16 A and B and fp32 C. `scratch` (64-byte aligned) serves oneDNN's scratchpad; a primitive that wants
// more gets memory for the call. A new shape costs about 0.4 ms once, a known one (oneDNN keeps the last 1024) 10 us.
void bf16_gemm(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, const Matrix& c, bool accumulate,
               std::span<std::byte> scratch);

enum class CpuBf16 : uint8_t { kNone, kSlow, kFast };
// kFast: AMX, or AMD with avx512_bf16; kSlow: avx512_bf16 elsewhere (half the fp32 rate).
CpuBf16 cpu_bf16();

}  // namespace lazytrain::ops::onednn
