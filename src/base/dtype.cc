#include "base/dtype.h"

#include <array>
#include <cmath>
#include <utility>

namespace lazytrain {
namespace {
constexpr std::array<std::pair<DType, std::string_view>, 7> kNames = {{{DType::kF32, "F32"},
                                                                       {DType::kBF16, "BF16"},
                                                                       {DType::kF16, "F16"},
                                                                       {DType::kI16, "I16"},
                                                                       {DType::kI32, "I32"},
                                                                       {DType::kI64, "I64"},
                                                                       {DType::kU8, "U8"}}};
}  // namespace

std::string_view name_of(DType t) {
  for (const auto& [type, name] : kNames) {
    if (type == t) return name;
  }
  return "?";
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const auto& [type, known] : kNames) {
    if (known == name) return type;
  }
  return std::nullopt;
}

float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -magnitude : magnitude;
  }
  const uint32_t rebiased = exponent == 31 ? 0xffu : exponent + 112;
  return std::bit_cast<float>(sign | (rebiased << 23) | (mantissa << 13));
}

}  // namespace lazytrain
