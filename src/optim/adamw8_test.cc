// AdamW on 8-bit moments: bits against a scalar reference, the error of the moments, and how far an update is from that
// of fp32 moments.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "base/arith.h"
#include "base/error.h"
#include "optim/adamw.h"
#include "optim/each_target.h"

namespace lazytrain::optim {
namespace {

struct State {
  std::vector<bf16> hi;
  std::vector<int16_t> lo;
  std::vector<int8_t> m;
  std::vector<uint8_t> v;
  std::vector<float> scales;
  int64_t block;

  State(size_t n, int64_t block_)
      : hi(n),
        lo(n),
        m(n),
        v(n),
        scales(static_cast<size_t>(2 * div_ceil(static_cast<int64_t>(n), block_))),
        block(block_) {}
  Moments8 view() { return {m.data(), v.data(), scales.data(), block}; }
  float weight(size_t i) const { return merge_master({hi[i], lo[i]}); }
  void set_weight(size_t i, float p) {
    const SplitMaster s = split_master(p);
    hi[i] = s.hi;
    lo[i] = s.lo;
  }
  template <typename Gradient>
  void update(const AdamWStep& step, const std::vector<Gradient>& gradient, ThreadPool* pool = nullptr) {
    adamw_update(step, hi.data(), lo.data(), view(), gradient.data(), static_cast<int64_t>(gradient.size()), pool);
  }
  void moments(std::vector<float>& m_to, std::vector<float>& v_to) {
    m_to.resize(m.size());
    v_to.resize(m.size());
    dequantize_moments(view(), m_to.data(), v_to.data(), static_cast<int64_t>(m.size()), nullptr);
  }
  bool operator==(const State&) const = default;
};

float value_of(bf16 x) { return to_float(x); }
float value_of(float x) { return x; }
template <typename Gradient>
Gradient gradient_of(float x) {
  if constexpr (std::is_same_v<Gradient, bf16>) {
    return to_bf16(x);
  } else {
    return x;
  }
}

// Magnitudes from denormal to 1e38, both signs, exact zeros; or, tame, a few decades.
float draw(std::mt19937& random, bool wild) {
  if (random() % 8 == 0) return 0.0f;
  std::uniform_real_distribution<float> exponent(wild ? -44.0f : -7.0f, wild ? 38.0f : -1.0f);
  const float magnitude = std::pow(10.0f, exponent(random));
  return random() % 2 == 0 ? magnitude : -magnitude;
}

// The documented arithmetic written out for one block, one element after the other.
template <typename Gradient>
void reference_block(State& s, size_t first, size_t n, const AdamWStep& step, const Gradient* gradient) {
  float* scales = &s.scales[2 * (first / static_cast<size_t>(s.block))];
  const auto f = [](double x) { return static_cast<float>(x); };
  const float limit = f(std::min(std::ldexp(1.0, 63) / step.gradient_scale, 3.4028234663852886e38));
  const float m_step = scales[0] * f(step.beta1 / 16129), root_step = scales[1] * f(std::sqrt(step.beta2) / 65025);
  std::vector<float> m(n), root(n);
  float m_scale = 0.0f, root_scale = 0.0f;
  for (size_t i = 0; i < n; ++i) {
    const float g = std::clamp(value_of(gradient[first + i]), -limit, limit);
    const float c = s.m[first + i], k = s.v[first + i];
    m[i] = c * std::abs(c) * m_step + g * f((1 - step.beta1) * step.gradient_scale);
    const float old = k * k * root_step, of_g = g * f(std::sqrt(1 - step.beta2) * step.gradient_scale);
    root[i] = std::sqrt(old * old + of_g * of_g);
    m_scale = std::max(m_scale, std::abs(m[i]));
    root_scale = std::max(root_scale, root[i]);
    const float p = s.weight(first + i) * f(1 - step.lr * step.weight_decay);
    const float denominator = root[i] * f(1 / std::sqrt(step.bias_correction2)) + f(step.eps);
    s.set_weight(first + i, p - f(step.lr / step.bias_correction1) * m[i] / denominator);
  }
  if (m_scale < std::ldexp(1.0f, -100)) m_scale = 0.0f;
  scales[0] = m_scale;
  scales[1] = root_scale;
  for (size_t i = 0; i < n; ++i) {
    const float x = m_scale > 0 ? std::sqrt(std::abs(m[i]) * (16129.0f / m_scale)) : 0.0f;
    s.m[first + i] = static_cast<int8_t>(std::copysign(std::nearbyint(x), m[i]));
    if (root[i] == 0.0f) {
      s.v[first + i] = 0;
      continue;
    }
    // In 4096ths of a code; the last 12 bits of the root decide whether it goes up or down.
    const float y = std::sqrt(root[i] * (65025.0f / root_scale));
    const auto places = static_cast<int64_t>(std::nearbyint(static_cast<double>(y) * 4096));
    const auto code = (places + (std::bit_cast<uint32_t>(root[i]) & 4095)) / 4096;
    s.v[first + i] = static_cast<uint8_t>(std::max<int64_t>(code, 1));
  }
}

template <typename Gradient>
void reference(State& s, const AdamWStep& step, const std::vector<Gradient>& gradient) {
  const auto block = static_cast<size_t>(s.block);
  for (size_t first = 0; first < gradient.size(); first += block) {
    reference_block(s, first, std::min(block, gradient.size() - first), step, gradient.data());
  }
}

template <typename Gradient>
void expect_reference_bits(const AdamWOptions& options, double scale, size_t n, int64_t block, bool wild) {
  SCOPED_TRACE(testing::Message() << n << " elements, block " << block << (wild ? ", wild" : ""));
  std::mt19937 random(static_cast<uint32_t>(n * 31 + static_cast<size_t>(block)));
  State state(n, block);
  for (size_t i = 0; i < n; ++i) state.set_weight(i, draw(random, false));
  State expected = state;
  std::vector<Gradient> gradient(n);
  for (int64_t t = 1; t <= 4; ++t) {
    for (auto& g : gradient) g = gradient_of<Gradient>(draw(random, wild));
    const AdamWStep step = adamw_step(options, 1e-2, t, scale, true);
    state.update(step, gradient);
    reference(expected, step, gradient);
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(state.hi[i], expected.hi[i]) << "step " << t << " element " << i;
      ASSERT_EQ(state.lo[i], expected.lo[i]) << "step " << t << " element " << i;
      ASSERT_EQ(state.m[i], expected.m[i]) << "step " << t << " element " << i;
      ASSERT_EQ(state.v[i], expected.v[i]) << "step " << t << " element " << i;
    }
    ASSERT_EQ(std::memcmp(state.scales.data(), expected.scales.data(), state.scales.size() * sizeof(float)), 0);
  }
}

TEST(AdamW8, EveryInstructionSetGivesTheBitsOfTheScalarReference) {
  const int targets = for_each_target([] {
    for (const size_t n : {0u, 1u, 7u, 63u, 64u, 65u, 255u, 256u, 257u, 1000u, 4096u, 9000u}) {
      for (const int64_t block : {64, 256, 2048, 4096}) {
        expect_reference_bits<bf16>({.weight_decay = 0.1}, 0.37, n, block, n % 2 == 0);
        expect_reference_bits<float>({.weight_decay = 0.1}, 0.37, n, block, n % 2 == 1);
      }
    }
    expect_reference_bits<float>({.beta1 = 0.3, .beta2 = 0.5, .eps = 1e-3}, 1.0, 999, 256, true);
    expect_reference_bits<bf16>({.beta1 = 0.0, .beta2 = 0.0}, 1.0, 999, 256, false);
  });
  EXPECT_GE(targets, 1);
  RecordProperty("targets", targets);
}

State random_state(std::mt19937& random, size_t n, int64_t block) {
  State state(n, block);
  for (size_t i = 0; i < n; ++i) state.set_weight(i, draw(random, false));
  std::vector<bf16> gradient(n);
  for (auto& g : gradient) g = to_bf16(draw(random, false));
  state.update(adamw_step({}, 1e-3, 1, 1.0, true), gradient);
  return state;
}

TEST(AdamW8, ThreadsAndPiecesDoNotChangeABit) {
  constexpr size_t kCount = 100'003;
  std::mt19937 random(11);
  std::vector<bf16> gradient(kCount);
  for (auto& g : gradient) g = to_bf16(draw(random, false));
  const AdamWStep step = adamw_step({.weight_decay = 0.1}, 1e-3, 2, 0.5, true);
  for (const int64_t block : {256, 4096}) {
    const State start = random_state(random, kCount, block);
    State alone = start;
    alone.update(step, gradient);
    ASSERT_NE(alone, start);
    for (const int threads : {1, 2, 3, 5}) {
      ThreadPool pool(threads);
      State shared = start;
      shared.update(step, gradient, &pool);
      EXPECT_EQ(shared, alone) << threads;
    }
    State pieces = start;
    for (int64_t first = 0; first < static_cast<int64_t>(kCount);) {
      const int64_t count = std::min(block * (1 + first / block % 3), static_cast<int64_t>(kCount) - first);
      adamw_update(step, pieces.hi.data() + first, pieces.lo.data() + first, advance(pieces.view(), first / block),
                   gradient.data() + first, count, nullptr);
      first += count;
    }
    EXPECT_EQ(pieces, alone);
  }
}

TEST(AdamW8, Fp32MomentsGoToTheirOwnPass) {
  std::vector<bf16> hi(100), other_hi(100), gradient(100, to_bf16(0.5f));
  std::vector<int16_t> lo(100), other_lo(100);
  std::vector<float> m(100), v(100), other_m(100), other_v(100);
  const AdamWStep step = adamw_step({}, 1e-3, 1, 1.0, true);
  adamw_update(step, hi.data(), lo.data(), Moments32{m.data(), v.data()}, gradient.data(), 100, nullptr);
  adamw_update(step, {other_hi.data(), other_lo.data(), other_m.data(), other_v.data()}, gradient.data(), 100, nullptr);
  EXPECT_EQ(hi, other_hi);
  EXPECT_EQ(m, other_m);
  EXPECT_NE(m[0], 0.0f);
}

// New moments in double from the old codes and the gradient, against the codes that the pass leaves. The bound is that
// of moments.h with |e| < 1 for v.
TEST(AdamW8, NewMomentsAreWithinTheBounds) {
  constexpr size_t kCount = 256 * 200;
  std::mt19937 random(23);
  State state = random_state(random, kCount, 256);
  std::vector<float> gradient(kCount), old_m, old_v, new_m, new_v;
  for (int64_t t = 2; t <= 40; ++t) {
    for (auto& g : gradient) g = draw(random, false);
    state.moments(old_m, old_v);
    state.update(adamw_step({}, 1e-3, t, 1.0, true), gradient);
    state.moments(new_m, new_v);
    for (size_t first = 0; first < kCount; first += 256) {
      int largest_m = 0, largest_v = 0;
      for (size_t i = first; i < first + 256; ++i) {
        largest_m = std::max(largest_m, std::abs(state.m[i]));
        largest_v = std::max<int>(largest_v, state.v[i]);
      }
      ASSERT_EQ(largest_m, 127);
      ASSERT_EQ(largest_v, 255) << "the largest is exact, never rounded down";
    }
    for (size_t i = 0; i < kCount; ++i) {
      const double g = gradient[i];
      const double m = 0.9 * old_m[i] + 0.1 * g, root = std::sqrt(0.999 * old_v[i] + 0.001 * g * g);
      const double m_scale = state.scales[2 * (i / 256)], root_scale = state.scales[2 * (i / 256) + 1];
      ASSERT_LE(std::abs(new_m[i] - m),
                std::sqrt(std::abs(m) * m_scale) / 127 + m_scale / (254.0 * 254.0) + 1e-5 * std::abs(m));
      const double new_root = std::sqrt(static_cast<double>(new_v[i]));
      ASSERT_LE(std::abs(new_root - root), 2 * std::sqrt(root * root_scale) / 255 + root_scale / 65025 + 1e-4 * root);
      ASSERT_TRUE(root < 1e-20 || root / new_root <= 4 * (1 + 1e-4));
    }
  }
}

// The worst that rounding can do: m = 0.1 g is followed by a step without a gradient, where the update is made of
// nothing but codes. fp32 moves by r = |m| / sqrt(v) at most; 8-bit by at most 4 r (v one code down from almost 2 to 1)
// times 4 (m up from 1/2 to 1), and a v that became 0 would move by m / eps, here millions of times as far.
TEST(AdamW8, NoUpdateBlowsUpOnARoundedV) {
  constexpr size_t kCount = 256 * 64;
  std::mt19937 random(29);
  std::uniform_real_distribution<float> exponent(-7.0f, 0.0f);
  State state(kCount, 256);
  std::vector<float> gradient(kCount), zero(kCount), m(kCount), v(kCount);
  for (size_t i = 0; i < kCount; ++i) gradient[i] = i % 256 == 0 ? 1.0f : std::pow(10.0f, exponent(random));
  std::vector<bf16> hi(kCount);
  std::vector<int16_t> lo(kCount);
  const AdamWOptions options{.eps = 1e-15};
  state.update(adamw_step(options, 0.0, 1, 1.0, true), gradient);
  adamw_update(adamw_step(options, 0.0, 1, 1.0, true), hi.data(), lo.data(), Moments32{m.data(), v.data()},
               gradient.data(), kCount, nullptr);
  const AdamWStep second = adamw_step(options, 1e-3, 2, 1.0, true);
  state.update(second, zero);
  adamw_update(second, hi.data(), lo.data(), Moments32{m.data(), v.data()}, zero.data(), kCount, nullptr);
  float worst = 0.0f;
  for (size_t i = 0; i < kCount; ++i) {
    const float plain = std::abs(merge_master({hi[i], lo[i]}));
    worst = std::max(worst, std::abs(state.weight(i)) / plain);
  }
  EXPECT_LE(worst, 16.0f);
  EXPECT_GT(worst, 1.0f);
}

// Each step's update from moments that were carried along in 8-bit, against that from fp32 moments on the same
// gradients; docs/optimizer.md has such figures for gradients of a model. Heavy tails are what nearest codes of v,
// which hardly ever go down, are bad at.
TEST(AdamW8, UpdatesStayNearThoseOfFp32Moments) {
  constexpr size_t kCount = 256 * 16;
  for (const double beta2 : {0.95, 0.999, 0.9999}) {
    std::mt19937 random(31);
    std::normal_distribution<float> normal;
    std::student_t_distribution<float> heavy(3.0f);
    std::vector<float> size(kCount), gradient(kCount), m(kCount), v(kCount);
    for (auto& s : size) s = 1e-3f * std::exp(normal(random));
    State state(kCount, 256);
    const AdamWOptions options{.beta2 = beta2};
    double error = 0.0, norm = 0.0, along = 0.0;
    for (int64_t t = 1; t <= 600; ++t) {
      for (size_t i = 0; i < kCount; ++i) gradient[i] = size[i] * heavy(random);
      const AdamWStep step = adamw_step(options, 1.0, t, 1.0, true);
      std::vector<bf16> hi(kCount);
      std::vector<int16_t> lo(kCount);
      adamw_update(step, hi.data(), lo.data(), Moments32{m.data(), v.data()}, gradient.data(), kCount, nullptr);
      std::fill(state.hi.begin(), state.hi.end(), bf16{});
      std::fill(state.lo.begin(), state.lo.end(), int16_t{0});
      state.update(step, gradient);
      for (size_t i = 0; t > 300 && i < kCount; ++i) {
        const double plain = merge_master({hi[i], lo[i]}), ours = state.weight(i);
        error += (ours - plain) * (ours - plain);
        norm += plain * plain;
        along += ours * plain;
      }
    }
    EXPECT_LE(std::sqrt(error / norm), 0.14) << beta2;
    EXPECT_NEAR(along / norm, 1.0, 0.01) << beta2;
  }
}

TEST(AdamW8, RateZeroMovesOnlyTheMoments) {
  std::mt19937 random(3);
  State state(1000, 256);
  for (size_t i = 0; i < 1000; ++i) state.set_weight(i, draw(random, false) + 1e-30f);
  const State before = state;
  const std::vector<float> gradient(1000, 0.25f);
  state.update(adamw_step({.weight_decay = 0.1}, 0.0, 1, 1.0, true), gradient);
  EXPECT_EQ(state.hi, before.hi);
  EXPECT_EQ(state.lo, before.lo);
  std::vector<float> m, v;
  state.moments(m, v);
  for (size_t i = 0; i < 1000; ++i) {
    EXPECT_FLOAT_EQ(m[i], 0.025f);
    EXPECT_FLOAT_EQ(v[i], 0.001f * 0.0625f);
  }
}

TEST(AdamW8, ZeroGradientAndStateOnlyDecay) {
  State state(300, 256);
  for (size_t i = 0; i < 300; ++i) state.set_weight(i, static_cast<float>(i) - 150.0f);
  state.update(adamw_step({.weight_decay = 0.5}, 0.25, 1, 1.0, true), std::vector<bf16>(300));
  for (size_t i = 0; i < 300; ++i) EXPECT_EQ(state.weight(i), (static_cast<float>(i) - 150.0f) * 0.875f);
  EXPECT_EQ(state.m, std::vector<int8_t>(300));
  EXPECT_EQ(state.v, std::vector<uint8_t>(300));
  EXPECT_EQ(state.scales, std::vector<float>(4));
}

// Settings that people use, from the first update to the millionth, on gradients over 60 decades: everything stays
// finite and no update is further than rounding can make it (16 times that of fp32, which Cauchy and Schwarz bound by
// (1 - beta1) / sqrt((1 - beta2) (1 - beta1^2 / beta2))).
TEST(AdamW8, ExtremeSettingsAndGradientsStayFinite) {
  std::mt19937 random(37);
  for (const double beta2 : {0.95, 0.99, 0.999, 0.9999}) {
    for (const double eps : {1e-15, 1e-8, 1e-6}) {
      const double bound = 16 * 0.1 / std::sqrt((1 - beta2) * (1 - 0.81 / beta2));
      State state(600, 256);
      std::vector<float> gradient(600), m, v;
      for (const int64_t t : {1, 2, 3, 4, 1'000'000}) {
        for (auto& g : gradient) g = draw(random, true);
        std::fill(state.hi.begin(), state.hi.end(), bf16{});
        std::fill(state.lo.begin(), state.lo.end(), int16_t{0});
        const AdamWStep step = adamw_step({.beta2 = beta2, .eps = eps}, 1e-3, t, 1.0, true);
        state.update(step, gradient);
        const double corrected = bound * std::sqrt(step.bias_correction2) / step.bias_correction1;
        for (size_t i = 0; i < 600; ++i) {
          ASSERT_LE(std::abs(state.weight(i)), 1e-3 * corrected) << beta2 << " " << eps << " " << t;
        }
        ASSERT_EQ(first_bad_scale(state.scales.data(), static_cast<int64_t>(state.scales.size())), std::nullopt);
      }
    }
  }
}

TEST(AdamW8, FirstUpdateIsTheRateAgainstTheSign) {
  for (const float gradient : {1e-3f, -1.0f, 1e15f, -1e30f}) {
    State state(64, 64);
    state.update(adamw_step({}, 1e-3, 1, 1.0, true), std::vector<float>(64, gradient));
    EXPECT_NEAR(state.weight(5), -std::copysign(1e-3f, gradient), 1e-7f) << gradient;
  }
}

}  // namespace
}  // namespace lazytrain::optim
