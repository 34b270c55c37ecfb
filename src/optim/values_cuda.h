// Elements of any type as one thread's part of an array, by 128-bit accesses where the array allows it.
#pragma once

#include <cstring>

#include "cuda/kernel.h"

namespace lazytrain::optim::on_cuda {

template <typename T, int kCount>
struct alignas(16) Values {
  T v[kCount];
};

// The first n elements from `from` on, the others zero.
template <int kCount, typename T>
__device__ Values<T, kCount> load_values(const T* from, int n, bool aligned) {
  Values<T, kCount> result{};
  if (aligned && n == kCount) {
    constexpr int kEach = 16 / static_cast<int>(sizeof(T));
    for (int i = 0; i < kCount; i += kEach) {
      const cuda::Bits128 bits = cuda::load_128(from + i);
      std::memcpy(result.v + i, &bits, sizeof bits);
    }
  } else {
    for (int i = 0; i < kCount; ++i) {
      if (i < n) result.v[i] = from[i];
    }
  }
  return result;
}

template <int kCount, typename T>
__device__ void store_values(const Values<T, kCount>& values, T* to, int n, bool aligned) {
  if (aligned && n == kCount) {
    constexpr int kEach = 16 / static_cast<int>(sizeof(T));
    for (int i = 0; i < kCount; i += kEach) {
      cuda::Bits128 bits;
      std::memcpy(&bits, values.v + i, sizeof bits);
      cuda::store_128(bits, to + i);
    }
  } else {
    for (int i = 0; i < kCount; ++i) {
      if (i < n) to[i] = values.v[i];
    }
  }
}

inline bool starts_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

// The bits of an fp32 weight from its two halves and back (base/dtype.h), for what is not a NaN.
__device__ inline float merged(bf16 hi, int16_t lo) { return merge_master({hi, lo}); }
__device__ inline bf16 upper_half(float weight) {
  return {static_cast<uint16_t>((std::bit_cast<uint32_t>(weight) + 0x8000u) >> 16)};
}
__device__ inline int16_t lower_half(float weight) {
  return static_cast<int16_t>(std::bit_cast<uint32_t>(weight) & 0xffffu);
}

// How many of the kCount elements from `at` on are there.
template <int kCount>
__device__ int count_at(int64_t at, int64_t total) {
  return at >= total ? 0 : total - at < kCount ? static_cast<int>(total - at) : kCount;
}

}  // namespace lazytrain::optim::on_cuda
