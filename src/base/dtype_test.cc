#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace lazytrain {
namespace {

uint32_t bits(float v) { return std::bit_cast<uint32_t>(v); }

// Every sign and exponent with the mantissas where rounding changes its mind, and random ones.
std::vector<float> telling_floats() {
  std::vector<uint32_t> mantissas = {0,       1,       0x7fff,   0x8000,   0x8001,   0xffff,   0x10000,  0x17fff,
                                     0x18000, 0x18001, 0x3fffff, 0x400000, 0x7f7fff, 0x7f8000, 0x7f8001, 0x7fffff};
  const CounterRng rng(3, 0);
  for (uint64_t i = 0; i < 64; ++i) mantissas.push_back(static_cast<uint32_t>(rng.bits(i) & 0x7fffff));
  std::vector<float> out;
  for (uint32_t top = 0; top < 512; ++top) {
    for (const uint32_t mantissa : mantissas) out.push_back(std::bit_cast<float>(top << 23 | mantissa));
  }
  return out;
}

// Nearest bf16 of a finite float by trying the neighbours in double arithmetic, ties to the even one.
uint16_t nearest_even(float v) {
  const auto value_of = [](int32_t magnitude) {  // bf16 magnitude bits as a double; 0x7f80 stands for 2^128
    const int exponent = magnitude >> 7, mantissa = magnitude & 0x7f;
    return exponent == 0 ? std::ldexp(mantissa, -133) : std::ldexp(128 + mantissa, exponent - 134);
  };
  const double magnitude = std::fabs(static_cast<double>(v));
  int32_t low = 0, high = 0x7f80;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    (value_of(middle) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - value_of(low), above = value_of(high) - magnitude;
  const int32_t nearest = below < above || (below == above && low % 2 == 0) ? low : high;
  return static_cast<uint16_t>(nearest | (std::signbit(v) ? 0x8000 : 0));
}

TEST(DType, NamesAndSizes) {
  EXPECT_EQ(name_of(DType::kBF16), "BF16");
  EXPECT_EQ(dtype_from_name("F32"), DType::kF32);
  EXPECT_EQ(dtype_from_name("f32"), std::nullopt);
  EXPECT_EQ(dtype_from_name("F64"), std::nullopt);
  for (const auto& [type, size] : std::vector<std::pair<DType, int64_t>>{{DType::kF32, 4},
                                                                         {DType::kBF16, 2},
                                                                         {DType::kF16, 2},
                                                                         {DType::kI16, 2},
                                                                         {DType::kI32, 4},
                                                                         {DType::kI64, 8},
                                                                         {DType::kU8, 1}}) {
    EXPECT_EQ(size_of(type), size);
    EXPECT_EQ(dtype_from_name(name_of(type)), type);
  }
}

TEST(Bf16, RoundsToNearestEven) {
  for (const float v : telling_floats()) {
    if (!std::isfinite(v)) continue;
    ASSERT_EQ(to_bf16(v).bits, nearest_even(v)) << std::hexfloat << v;
  }
}

TEST(Bf16, KeepsInfinityAndNan) {
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::infinity()).bits, 0x7f80);
  EXPECT_EQ(to_bf16(-std::numeric_limits<float>::infinity()).bits, 0xff80);
  for (const uint32_t u : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
    const float v = to_float(to_bf16(std::bit_cast<float>(u)));
    EXPECT_TRUE(std::isnan(v));
    EXPECT_EQ(std::signbit(v), (u >> 31) != 0);
  }
}

TEST(Bf16, EveryPatternSurvivesFloat) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const bf16 v{static_cast<uint16_t>(i)};
    if (std::isnan(to_float(v))) continue;
    ASSERT_EQ(to_bf16(to_float(v)), v);
  }
}

TEST(SplitMaster, IsExactForEveryFloat) {
  for (const float v : telling_floats()) {
    const SplitMaster split = split_master(v);
    if (std::isnan(v)) {
      ASSERT_TRUE(std::isnan(to_float(split.hi))) << std::hex << bits(v);
      ASSERT_TRUE(std::isnan(merge_master(split))) << std::hex << bits(v);
    } else {
      ASSERT_EQ(bits(merge_master(split)), bits(v)) << std::hex << bits(v);
    }
  }
}

TEST(SplitMaster, HiIsANearestBf16) {
  for (const float v : telling_floats()) {
    if (!std::isfinite(v)) continue;
    const uint16_t hi = split_master(v).hi.bits;
    if ((bits(v) & 0xffff) != 0x8000) {
      ASSERT_EQ(hi, nearest_even(v)) << std::hexfloat << v;
    } else {  // a tie goes away from zero
      ASSERT_EQ(hi, (bits(v) >> 16) + 1) << std::hexfloat << v;
    }
  }
}

TEST(SplitMaster, ABf16HasNoRemainder) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const float v = to_float(bf16{static_cast<uint16_t>(i)});
    if (std::isnan(v)) continue;
    ASSERT_EQ(split_master(v).hi.bits, i);
    ASSERT_EQ(split_master(v).lo, 0);
  }
}

TEST(Half, EveryValueIsExact) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const int exponent = static_cast<int>(i >> 10 & 31), mantissa = static_cast<int>(i & 1023);
    const float v = half_to_float(static_cast<uint16_t>(i));
    ASSERT_EQ(std::signbit(v), (i >> 15) != 0);
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(v), mantissa != 0);
      ASSERT_EQ(std::isinf(v), mantissa == 0);
    } else {
      const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      ASSERT_EQ(std::fabs(static_cast<double>(v)), magnitude) << i;
    }
  }
  EXPECT_EQ(half_to_float(0x3c00), 1.0f);
  EXPECT_EQ(half_to_float(0x7bff), 65504.0f);
  EXPECT_EQ(half_to_float(0x3555), 0.333251953125f);
}

}  // namespace
}  // namespace lazytrain
