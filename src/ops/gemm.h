// C (+)= op(A) op(B): every matrix product of the program on the CPU device.
//
// Parallelism is the pool's alone: C is cut into a grid of at most threads() tiles that depends on the shape and the
// number of threads, and each tile is computed by one thread that calls oneDNN sequentially. Same shapes, strides,
// strategy and thread count give the same bits, whichever thread runs a tile and whatever else runs beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/tensor_view.h"
#include "base/thread_pool.h"

namespace lazytrain::ops {

// How bf16 operands are multiplied; fp32 operands do not care.
enum class GemmStrategy : uint8_t {
  kNative,  // oneDNN's bf16 kernels: twice the fp32 rate with AMX and on AMD Zen 4 and later
  kWiden,   // blocks of the operands become fp32 in scratch: faster wherever vdpbf16ps is slow (Intel without AMX) or
            // missing. The products are exact in fp32 either way, so only the order of the sums differs.
};

// Chosen by CPUID alone, so it never changes on a machine.
GemmStrategy preferred_gemm_strategy();
// True when this CPU has bf16 instructions, i.e. when kNative is not an emulation.
bool native_bf16_supported();

// C[M,N] = [C +] op(A)[M,K] op(B)[K,N] [+ bias]. A and B are bf16 or fp32 (kWiden takes one of each), C either.
// Sums are fp32; a bf16 C is rounded once, after the old C and the bias were added.
struct Gemm {
  TensorView a;  // [M,K], or [K,M] when transposed
  bool transpose_a = false;
  TensorView b;  // [K,N], or [N,K] when transposed
  bool transpose_b = false;
  TensorView c;  // [M,N]; must not overlap A, B or bias
  bool accumulate = false;
  TensorView bias = {};  // empty or [1,N], bf16 or fp32

  int64_t m() const { return c.rows; }
  int64_t n() const { return c.cols; }
  int64_t k() const { return transpose_a ? a.rows : a.cols; }
};

// What scratch a product needs, by shape and dtypes.
struct GemmSize {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  DType a = DType::kBF16;
  DType b = DType::kBF16;
  DType c = DType::kBF16;
};

// Bytes of scratch for gemm() of at most this size; bounded (6 MiB a thread at most) whatever the size.
int64_t gemm_scratch_bytes(const GemmSize& size, int threads, GemmStrategy strategy);

// Runs on all threads of the pool. `scratch` is 64-byte aligned. Not from inside a body of the pool.
// Shapes are proven by the caller; throws RunError when the scratch is too small or oneDNN fails.
void gemm(ThreadPool& pool, std::span<std::byte> scratch, const Gemm& g, GemmStrategy strategy);

// The same on the calling thread alone (with gemm_scratch_bytes(size, 1, strategy)).
void gemm_on_this_thread(std::span<std::byte> scratch, const Gemm& g, GemmStrategy strategy);

}  // namespace lazytrain::ops
