// Element types and the scalar conversions that define them.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lazytrain {

enum class DType : uint8_t { kF32, kBF16, kF16, kI16, kI32, kI64, kU8 };

constexpr int64_t size_of(DType t) {
  switch (t) {
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
    case DType::kI16:
      return 2;
    case DType::kU8:
      return 1;
  }
  return 0;
}

// The name as safetensors writes it ("F32", "BF16", ...).
std::string_view name_of(DType t);
std::optional<DType> dtype_from_name(std::string_view name);

// The upper half of a float. Conversion rounds to nearest even; a NaN stays a (quiet) NaN.
struct bf16 {
  uint16_t bits;
  friend bool operator==(bf16, bf16) = default;
};

constexpr float to_float(bf16 v) { return std::bit_cast<float>(static_cast<uint32_t>(v.bits) << 16); }

constexpr bf16 to_bf16(float v) {
  const auto u = std::bit_cast<uint32_t>(v);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

// IEEE half to float, exact.
float half_to_float(uint16_t bits);

// Split master weight (DESIGN: hi = nearest bf16, lo = signed remainder of the fp32 bits). Exact for every finite
// float: merge_master(split_master(w)) == w bit for bit. hi is what the device computes with, only the optimizer reads
// lo. Rounding hi to an infinity (|w| > bf16 max) keeps the bits too, since the remainder is taken on the integer. A
// NaN gets a quiet NaN hi and no remainder: on the bits alone, 0x7fff8000 and above would turn into zeros.
struct SplitMaster {
  bf16 hi;
  int16_t lo;
};

constexpr SplitMaster split_master(float w) {
  const auto u = std::bit_cast<uint32_t>(w);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {to_bf16(w), 0};
  // Ties go up here (not to even) so that the remainder always fits: u - (hi << 16) is in [-32768, 32767].
  const uint32_t hi = (u + 0x8000u) >> 16;
  return {{static_cast<uint16_t>(hi)}, static_cast<int16_t>(static_cast<int32_t>(u - (hi << 16)))};
}

constexpr float merge_master(SplitMaster s) {
  return std::bit_cast<float>((static_cast<uint32_t>(s.hi.bits) << 16) +
                              static_cast<uint32_t>(static_cast<int32_t>(s.lo)));
}

}  // namespace lazytrain
