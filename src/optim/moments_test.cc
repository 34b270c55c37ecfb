#include "optim/moments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <random>
#include <vector>

#include "base/arith.h"
#include "base/error.h"

namespace lazytrain::optim {
namespace {

struct Codes {
  std::vector<int8_t> m;
  std::vector<uint8_t> v;
  std::vector<float> scales;
  int64_t block;

  Codes(size_t n, int64_t block_)
      : m(n), v(n), scales(static_cast<size_t>(2 * div_ceil(static_cast<int64_t>(n), block_))), block(block_) {}
  Moments8 view() { return {m.data(), v.data(), scales.data(), block}; }
  bool operator==(const Codes&) const = default;
};

struct Plain {
  std::vector<float> m, v;
  explicit Plain(size_t n) : m(n), v(n) {}
};

Codes quantized(const Plain& from, int64_t block, ThreadPool* pool = nullptr) {
  Codes codes(from.m.size(), block);
  quantize_moments(from.m.data(), from.v.data(), codes.view(), static_cast<int64_t>(from.m.size()), pool);
  return codes;
}

Plain dequantized(Codes& from, ThreadPool* pool = nullptr) {
  Plain plain(from.m.size());
  dequantize_moments(from.view(), plain.m.data(), plain.v.data(), static_cast<int64_t>(from.m.size()), pool);
  return plain;
}

// The shapes of a block: how far its elements lie apart (decades), how large they are, how many are zero.
void fill(std::mt19937& random, float* m, float* v, int64_t n) {
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  const float decades = 8.0f * uniform(random) * uniform(random);
  const float size = std::pow(10.0f, -12.0f + 20.0f * uniform(random));
  const float zeros = random() % 4 == 0 ? uniform(random) : 0.0f;
  for (int64_t i = 0; i < n; ++i) {
    const bool zero = uniform(random) < zeros;
    const float root = zero ? 0.0f : size * std::pow(10.0f, -decades * uniform(random));
    m[i] = root * (2.0f * uniform(random) - 1.0f);
    v[i] = root * root;
  }
}

// A number of random blocks: the environment variable asks for more than the default.
int64_t random_blocks() {
  constexpr int64_t kDefault = 20'000;
  const char* asked = std::getenv("LAZYTRAIN_RANDOM_BLOCKS");
  const int64_t count = asked != nullptr ? std::max<int64_t>(1, std::atoll(asked)) : kDefault;
  if (asked == nullptr) {
    std::cout << "[ note     ] " << kDefault << " random blocks; LAZYTRAIN_RANDOM_BLOCKS=1000000 for more\n";
  }
  return count;
}

// The bounds of moments.h, in double, with a few roundings of float added.
TEST(Moments8, ErrorsStayWithinTheBoundsInRandomBlocks) {
  constexpr int64_t kBlock = 256;
  constexpr double kRounding = 1e-5;
  const int64_t blocks = random_blocks();
  std::mt19937 random(7);
  Plain plain(kBlock);
  double worst_m = 0.0, worst_root = 0.0, worst_ratio = 0.0;  // share of the bound that was reached
  for (int64_t b = 0; b < blocks; ++b) {
    fill(random, plain.m.data(), plain.v.data(), kBlock);
    Codes codes = quantized(plain, kBlock);
    const Plain back = dequantized(codes);
    const double m_scale = codes.scales[0], root_scale = codes.scales[1];
    for (size_t i = 0; i < kBlock; ++i) {
      const double m = plain.m[i], root = std::sqrt(static_cast<double>(plain.v[i]));
      const double root_back = std::sqrt(static_cast<double>(back.v[i]));
      const double m_bound = std::sqrt(std::abs(m) * m_scale) / 127 + m_scale / (254.0 * 254.0);
      const double root_bound = std::max(std::sqrt(root * root_scale) / 255 + root_scale / (510.0 * 510.0),
                                         codes.v[i] == 1 ? root_scale / (255.0 * 255.0) : 0.0);
      if (m_scale > 0) worst_m = std::max(worst_m, std::abs(back.m[i] - m) / (m_bound + kRounding * std::abs(m)));
      if (root_scale > 0) {
        worst_root = std::max(worst_root, std::abs(root_back - root) / (root_bound + kRounding * root));
      }
      if (root > 0) worst_ratio = std::max(worst_ratio, root / root_back);
      ASSERT_EQ(codes.v[i] == 0, plain.v[i] == 0.0f) << "block " << b << " element " << i;
    }
    ASSERT_LE(worst_m, 1.0) << "block " << b;
    ASSERT_LE(worst_root, 1.0) << "block " << b;
  }
  // Bounds that are nearly reached say something; the root is never made smaller than by 1.5^2.
  EXPECT_GT(worst_m, 0.99);
  EXPECT_GT(worst_root, 0.99);
  EXPECT_LE(worst_ratio, 2.25 * (1 + kRounding));
}

TEST(Moments8, TheLargestElementIsExactAndZeroIsZero) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> exponent(-28.0f, 38.0f);
  for (int trial = 0; trial < 20'000; ++trial) {
    Plain plain(256);
    const size_t at = random() % 256;
    const float largest = std::pow(10.0f, exponent(random));
    const float root = std::pow(10.0f, exponent(random) / 2);
    plain.m[at] = trial % 2 == 0 ? largest : -largest;
    plain.v[at] = root * root;
    Codes codes = quantized(plain, 256);
    const Plain back = dequantized(codes);
    for (size_t i = 0; i < 256; ++i) {
      ASSERT_EQ(back.m[i], plain.m[i]);
      // v is exact to the rounding of its root: S is the root.
      ASSERT_EQ(std::sqrt(back.v[i]), std::sqrt(plain.v[i]));
    }
  }
  Plain zero(256);
  Codes codes = quantized(zero, 256);
  EXPECT_EQ(codes, Codes(256, 256));
  EXPECT_EQ(dequantized(codes).v, zero.v);
}

TEST(Moments8, ConvertingBackAndForthKeepsEveryByte) {
  std::mt19937 random(11);
  for (const int64_t block : {64, 256, 4096}) {
    for (const size_t n : {1u, 255u, 256u, 4097u, 40'000u}) {
      Plain plain(n);
      for (size_t i = 0; i < n; i += 500) {
        fill(random, plain.m.data() + i, plain.v.data() + i, static_cast<int64_t>(std::min<size_t>(500, n - i)));
      }
      Codes codes = quantized(plain, block);
      const Codes again = quantized(dequantized(codes), block);
      ASSERT_EQ(again, codes) << "block " << block << " of " << n;
    }
  }
}

TEST(Moments8, ThreadsDoNotChangeABit) {
  std::mt19937 random(5);
  Plain plain(100'003);
  fill(random, plain.m.data(), plain.v.data(), 100'003);
  Codes alone = quantized(plain, 256);
  const Plain back = dequantized(alone);
  for (const int threads : {2, 5}) {
    ThreadPool pool(threads);
    Codes shared = quantized(plain, 256, &pool);
    EXPECT_EQ(shared, alone);
    const Plain other = dequantized(shared, &pool);
    EXPECT_EQ(other.m, back.m);
    EXPECT_EQ(other.v, back.v);
  }
}

TEST(ConvertMoments, BetweenAllFormats) {
  constexpr size_t kCount = 300'001;  // more than a piece
  std::mt19937 random(13);
  Plain plain(kCount);
  fill(random, plain.m.data(), plain.v.data(), kCount);
  const Moments32 plain_view{plain.m.data(), plain.v.data()};
  Codes fine = quantized(plain, 256), coarse = quantized(plain, 4096);

  Codes codes(kCount, 256);
  convert_moments(plain_view, codes.view(), kCount, nullptr);
  EXPECT_EQ(codes, fine);
  Plain back(kCount), copy(kCount);
  convert_moments(fine.view(), Moments32{back.m.data(), back.v.data()}, kCount, nullptr);
  EXPECT_EQ(back.m, dequantized(fine).m);
  convert_moments(plain_view, Moments32{copy.m.data(), copy.v.data()}, kCount, nullptr);
  EXPECT_EQ(copy.v, plain.v);

  Codes same(kCount, 256), other(kCount, 4096);
  ThreadPool pool(3);
  convert_moments(fine.view(), same.view(), kCount, &pool);
  EXPECT_EQ(same, fine);
  convert_moments(fine.view(), other.view(), kCount, &pool);
  EXPECT_EQ(other, quantized(dequantized(fine), 4096));
  EXPECT_EQ(other.scales, coarse.scales) << "the largest elements went through exactly";
}

TEST(Moments8, TakesWhatAFileMayHold) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kMax = std::numeric_limits<float>::max();
  Plain plain(256);
  const std::vector<float> hostile = {kInf, -kInf, kNan, -kNan, kMax, -kMax, 1e-45f, -1e-45f, -0.0f, -1.0f};
  for (size_t i = 0; i < hostile.size(); ++i) plain.m[i] = plain.v[i] = hostile[i];
  Codes codes = quantized(plain, 256);
  EXPECT_EQ(first_bad_scale(codes.scales.data(), 2), std::nullopt);
  const Plain back = dequantized(codes);
  for (size_t i = 0; i < 256; ++i) {
    EXPECT_TRUE(std::isfinite(back.m[i])) << i;
    EXPECT_TRUE(std::isfinite(back.v[i]) && back.v[i] >= 0.0f) << i;
  }
  EXPECT_EQ(back.m[0], kMax);
  EXPECT_EQ(back.m[2], 0.0f);
  EXPECT_EQ(back.v[1], 0.0f);
  for (const float bad : {-1.0f, kInf, kNan}) {
    codes.scales[1] = bad;
    EXPECT_EQ(first_bad_scale(codes.scales.data(), 2), 1);
  }
}

TEST(Moments8, AnMTooSmallForAReciprocalCountsAsZero) {
  Plain plain(256);
  plain.m[3] = 1e-36f;
  Codes codes = quantized(plain, 256);
  EXPECT_EQ(codes.scales[0], 0.0f);
  EXPECT_EQ(codes.m[3], 0);
}

TEST(MomentsAt, GivesTheArraysOfThePieceAndRefusesOthers) {
  const std::vector<StateParameter> unit = {{1'000, ParameterRole::kVector}, {10'000, ParameterRole::kMatrix}};
  const UnitMoments layout = unit_moments(unit, moment_formats(state_setting_from_name("8bit"), unit));
  std::vector<std::byte> state(static_cast<size_t>(layout.bytes));
  std::byte* base = state.data();
  const auto plain = std::get<Moments32>(moments_at(layout.parameters[0], base, 10));
  EXPECT_EQ(reinterpret_cast<std::byte*>(plain.m), base + 40);
  EXPECT_EQ(reinterpret_cast<std::byte*>(plain.v), base + layout.parameters[0].array("v").offset_bytes + 40);
  const MomentLayout& matrix = layout.parameters[1];
  const auto codes = std::get<Moments8>(moments_at(matrix, base, 512));
  EXPECT_EQ(reinterpret_cast<std::byte*>(codes.m), base + matrix.array("m8").offset_bytes + 512);
  EXPECT_EQ(reinterpret_cast<std::byte*>(codes.v), base + matrix.array("v8").offset_bytes + 512);
  EXPECT_EQ(reinterpret_cast<std::byte*>(codes.scales), base + matrix.array("scales").offset_bytes + 16);
  EXPECT_EQ(codes.block, 256);
  for (const int64_t bad : {-256, 1, 10'240}) EXPECT_THROW(moments_at(matrix, base, bad), RunError) << bad;
}

}  // namespace
}  // namespace lazytrain::optim
