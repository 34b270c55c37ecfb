// What the kernels in *.cu files are written with: the grid, shared memory, barriers, shuffles, 128-bit accesses and
// the launch. Under nvcc these are CUDA's; under a C++ compiler the same files run in the emulation (cuda/emulation.h).
//
// Kernels use correctly rounded operations only (nvcc: -fmad=false, the C++ compiler: -ffp-contract=off, fused where
// fmaf says so) and sum in an order that the shapes fix, so that a card and the emulation give the same bits.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "base/dtype.h"
#include "base/tensor_view.h"
#include "cuda/stream.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#else
#include <bit>
#include <cstring>

#include "cuda/emulation.h"
#endif

namespace lazytrain::cuda {

inline constexpr int kWarp = 32;

// ---- CUDA and its emulation -----------------------------------------------------------------------------------------

struct alignas(16) Bits128 {
  uint32_t word[4];
};
struct alignas(8) Bits64 {
  uint32_t word[2];
};

#ifdef __CUDACC__

__device__ inline int thread_x() { return static_cast<int>(threadIdx.x); }
__device__ inline int block_threads() { return static_cast<int>(blockDim.x); }
__device__ inline int64_t block_x() { return blockIdx.x; }
__device__ inline int64_t block_y() { return blockIdx.y; }
__device__ inline void sync_threads() { __syncthreads(); }
__device__ inline void sync_warp() { __syncwarp(); }
template <typename T>
__device__ T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
template <typename T>
__device__ T* shared_memory() {
  extern __shared__ __align__(16) unsigned char lazytrain_shared_memory[];
  return reinterpret_cast<T*>(lazytrain_shared_memory);
}
__device__ inline Bits128 load_128(const void* from) {
  const uint4 v = *static_cast<const uint4*>(from);
  return {{v.x, v.y, v.z, v.w}};
}
__device__ inline void store_128(const Bits128& bits, void* to) {
  *static_cast<uint4*>(to) = make_uint4(bits.word[0], bits.word[1], bits.word[2], bits.word[3]);
}
__device__ inline void store_64(const Bits64& bits, void* to) {
  *static_cast<uint2*>(to) = make_uint2(bits.word[0], bits.word[1]);
}
// The bits of to_bf16 (base/dtype.h) for all but a NaN, which stays one.
__device__ inline bf16 round_bf16(float v) { return {__bfloat16_as_ushort(__float2bfloat16_rn(v))}; }

// Blocks may take as much shared memory as the card has.
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, int threads, int64_t shared_bytes, Stream& stream,
            const Arguments&... arguments) {
  constexpr int64_t kWithoutAsking = 48 << 10;
  if (shared_bytes > kWithoutAsking) {
    cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shared_bytes));
  }
  const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y));
  kernel<<<blocks, static_cast<unsigned>(threads), static_cast<size_t>(shared_bytes),
           reinterpret_cast<cudaStream_t>(&stream)>>>(static_cast<Parameters>(arguments)...);
  check_launch(grid, threads);
}

#else

using emulation::block_threads;
using emulation::block_x;
using emulation::block_y;
using emulation::sync_threads;
using emulation::sync_warp;
using emulation::thread_x;
template <typename T>
T shuffle_xor(T value, int mask) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = emulation::shuffle_xor(bits, mask);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <typename T>
T* shared_memory() {
  return reinterpret_cast<T*>(emulation::shared_memory());
}
inline Bits128 load_128(const void* from) {
  emulation::require_aligned(from, sizeof(Bits128));
  Bits128 bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}
inline void store_128(const Bits128& bits, void* to) {
  emulation::require_aligned(to, sizeof bits);
  std::memcpy(to, &bits, sizeof bits);
}
inline void store_64(const Bits64& bits, void* to) {
  emulation::require_aligned(to, sizeof bits);
  std::memcpy(to, &bits, sizeof bits);
}
inline bf16 round_bf16(float v) { return to_bf16(v); }

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, int threads, int64_t shared_bytes, Stream& stream,
            const Arguments&... arguments) {
  stream.launch(
      {grid.x, grid.y, threads, shared_bytes},
      [kernel, copies = std::tuple<std::decay_t<Parameters>...>(arguments...)] { std::apply(kernel, copies); });
}

#endif

// ---- vectors of 128 bits --------------------------------------------------------------------------------------------

template <typename T>
inline constexpr int kLanes = 16 / static_cast<int>(sizeof(T));

// As fp32, kLanes<T> values of a T array.
template <typename T>
struct Lanes {
  float v[kLanes<T>];
};

__device__ inline float widened(float v) { return v; }
__device__ inline float widened(bf16 v) { return to_float(v); }
template <typename T>
__device__ T narrowed(float v) {
  if constexpr (sizeof(T) == 4) {
    return v;
  } else {
    return round_bf16(v);
  }
}
// The value as it is after a store in T.
template <typename T>
__device__ float stored(float v) {
  return widened(narrowed<T>(v));
}

// The first n lanes of what stands at `from`, the others 0. `aligned`: all of it is there and begins at a multiple of
// 16 bytes.
template <typename T>
__device__ Lanes<T> load_lanes(const T* from, int n, bool aligned) {
  Lanes<T> result;
  if (aligned && n == kLanes<T>) {
    const Bits128 bits = load_128(from);
    for (int i = 0; i < 4; ++i) {
      if constexpr (sizeof(T) == 4) {
        result.v[i] = std::bit_cast<float>(bits.word[i]);
      } else {
        result.v[2 * i] = std::bit_cast<float>(bits.word[i] << 16);
        result.v[2 * i + 1] = std::bit_cast<float>(bits.word[i] & 0xffff0000u);
      }
    }
  } else {
    for (int i = 0; i < kLanes<T>; ++i) result.v[i] = i < n ? widened(from[i]) : 0.0f;
  }
  return result;
}

__device__ inline uint32_t two_bf16(float low, float high) {
  return uint32_t{round_bf16(low).bits} | uint32_t{round_bf16(high).bits} << 16;
}

template <typename T>
__device__ void store_lanes(const Lanes<T>& lanes, T* to, int n, bool aligned) {
  if (aligned && n == kLanes<T>) {
    Bits128 bits;
    for (int i = 0; i < 4; ++i) {
      if constexpr (sizeof(T) == 4) {
        bits.word[i] = std::bit_cast<uint32_t>(lanes.v[i]);
      } else {
        bits.word[i] = two_bf16(lanes.v[2 * i], lanes.v[2 * i + 1]);
      }
    }
    store_128(bits, to);
  } else {
    for (int i = 0; i < kLanes<T>; ++i) {  // with fixed indices the lanes stay in registers
      if (i < n) to[i] = narrowed<T>(lanes.v[i]);
    }
  }
}

// Of `count` elements from `at` on, how many a vector at `at` has.
template <typename T>
__device__ int lanes_at(int64_t at, int64_t count) {
  return count - at < kLanes<T> ? static_cast<int>(count - at) : kLanes<T>;
}

// ---- matrices -------------------------------------------------------------------------------------------------------

// A TensorView as a kernel takes it.
template <typename T>
struct Rows {
  T* data;
  int64_t stride;

  __device__ T* row(int64_t r) const { return data + r * stride; }
  __device__ explicit operator bool() const { return data != nullptr; }
};

template <typename T>
Rows<T> rows_of(const TensorView& view) {
  return {static_cast<T*>(view.data), view.stride};
}

// Every row begins at a multiple of 16 bytes; true for a view that is empty.
inline bool rows_aligned(const TensorView& view) {
  const auto stride_bytes = static_cast<uintptr_t>(view.stride * size_of(view.dtype));
  return (reinterpret_cast<uintptr_t>(view.data) | (view.rows > 1 ? stride_bytes : 0)) % 16 == 0;
}
template <typename... Views>
bool all_aligned(const Views&... views) {
  return (rows_aligned(views) && ...);
}

// Calls body(T()) for the element type of a matrix of activations.
template <typename Body>
void for_activation(DType dtype, const Body& body) {
  if (dtype == DType::kBF16) {
    body(bf16());
  } else {
    body(float());
  }
}

// Threads of a block that goes over `count` elements a vector a thread, at most `most`: whole warps.
template <typename T>
int threads_for(int64_t count, int most) {
  const int64_t vectors = (count + kLanes<T> - 1) / kLanes<T>;
  const int64_t warps = (vectors + kWarp - 1) / kWarp;
  return static_cast<int>(warps * kWarp < most ? warps * kWarp : most);
}

// ---- sums over a block ----------------------------------------------------------------------------------------------

// Over the lanes of a warp, the same bits in each: both sides of an exchange add the same two numbers.
template <typename T>
__device__ T warp_sum(T v) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) v += shuffle_xor(v, mask);
  return v;
}
__device__ inline float warp_max(float v) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) v = fmaxf(v, shuffle_xor(v, mask));
  return v;
}

// Over a block of whole warps, warp after warp, the same bits in every thread. `space`: a T for each warp in shared
// memory, free again when it returns.
template <typename T>
__device__ T block_sum(T v, T* space) {
  v = warp_sum(v);
  const int warps = block_threads() / kWarp;
  if (thread_x() % kWarp == 0) space[thread_x() / kWarp] = v;
  sync_threads();
  T total = space[0];
  for (int w = 1; w < warps; ++w) total += space[w];
  sync_threads();
  return total;
}
__device__ inline float block_max(float v, float* space) {
  v = warp_max(v);
  const int warps = block_threads() / kWarp;
  if (thread_x() % kWarp == 0) space[thread_x() / kWarp] = v;
  sync_threads();
  float most = space[0];
  for (int w = 1; w < warps; ++w) most = fmaxf(most, space[w]);
  sync_threads();
  return most;
}

// The sum of values[0, count) in their order, in thread 0: the other threads of the block only fetch. `space`: a double
// for each thread in shared memory.
__device__ inline double ordered_sum(const double* values, int64_t count, double* space) {
  double total = 0;
  for (int64_t first = 0; first < count; first += block_threads()) {
    if (first + thread_x() < count) space[thread_x()] = values[first + thread_x()];
    sync_threads();
    const int64_t n = count - first < block_threads() ? count - first : block_threads();
    for (int64_t i = 0; thread_x() == 0 && i < n; ++i) total += space[i];
    sync_threads();
  }
  return total;
}

}  // namespace lazytrain::cuda
