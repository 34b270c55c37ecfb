#include "optim/adamw.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "optim/each_target.h"

namespace lazytrain::optim {
namespace {

// Weights and moments as plain fp32, and the arithmetic written out again for one element.
struct Reference {
  float p, m, v;

  void update(float gradient, double lr, double b1, double b2, double eps, double decay, double scale, int64_t t) {
    const float g = gradient * static_cast<float>(scale);
    p = p * static_cast<float>(1.0 - lr * decay);
    const float w = static_cast<float>(1.0 - b1);
    m = w < 0.5f ? m + w * (g - m) : g + (w - 1.0f) * (g - m);
    v = v * static_cast<float>(b2);
    v = v + static_cast<float>(1.0 - b2) * g * g;
    const double correction1 = 1.0 - std::pow(b1, static_cast<double>(t));
    const double correction2 = 1.0 - std::pow(b2, static_cast<double>(t));
    const float denominator = std::sqrt(v) / static_cast<float>(std::sqrt(correction2)) + static_cast<float>(eps);
    p = p + (-static_cast<float>(lr / correction1) * m) / denominator;
  }
};

struct Arrays {
  std::vector<bf16> hi;
  std::vector<int16_t> lo;
  std::vector<float> m, v;

  explicit Arrays(size_t n) : hi(n), lo(n), m(n), v(n) {}
  AdamWArrays view(size_t offset = 0) {
    return {hi.data() + offset, lo.data() + offset, m.data() + offset, v.data() + offset};
  }
  void set(size_t i, Reference r) {
    const SplitMaster s = split_master(r.p);
    hi[i] = s.hi;
    lo[i] = s.lo;
    m[i] = r.m;
    v[i] = r.v;
  }
  float weight(size_t i) const { return merge_master({hi[i], lo[i]}); }
  bool operator==(const Arrays&) const = default;
};

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

// Magnitudes from denormal to 1e30, both signs, exact zeros.
float wild(std::mt19937& random) {
  const float exponent = std::uniform_real_distribution<float>(-44.0f, 30.0f)(random);
  const auto pick = random() % 16;
  if (pick == 0) return 0.0f;
  const float magnitude = pick < 8 ? std::pow(10.0f, exponent) : std::pow(10.0f, exponent / 15.0f);
  return random() % 2 == 0 ? magnitude : -magnitude;
}

template <typename Gradient>
Gradient gradient_of(float x) {
  if constexpr (std::is_same_v<Gradient, bf16>) {
    return to_bf16(x);
  } else {
    return x;
  }
}
float value_of(bf16 x) { return to_float(x); }
float value_of(float x) { return x; }

template <typename Gradient>
void expect_reference_bits(const AdamWOptions& options, double scale, size_t n, size_t offset) {
  std::mt19937 random(static_cast<uint32_t>(n * 31 + offset));
  Arrays arrays(n + offset);
  std::vector<Reference> expected(n + offset);
  for (size_t i = 0; i < n + offset; ++i) {
    expected[i] = {wild(random), 0.0f, 0.0f};
    arrays.set(i, expected[i]);
  }
  std::vector<Gradient> gradient(n + offset);
  for (int64_t t = 1; t <= 4; ++t) {
    for (auto& g : gradient) g = gradient_of<Gradient>(wild(random));
    const AdamWStep step = adamw_step(options, 1e-2, t, scale, true);
    adamw_update(step, arrays.view(offset), gradient.data() + offset, static_cast<int64_t>(n), nullptr);
    for (size_t i = offset; i < n + offset; ++i) {
      expected[i].update(value_of(gradient[i]), 1e-2, options.beta1, options.beta2, options.eps, options.weight_decay,
                         scale, t);
      ASSERT_EQ(bits(arrays.weight(i)), bits(expected[i].p)) << "step " << t << " element " << i;
      ASSERT_EQ(bits(arrays.m[i]), bits(expected[i].m)) << "step " << t << " element " << i;
      ASSERT_EQ(bits(arrays.v[i]), bits(expected[i].v)) << "step " << t << " element " << i;
      const SplitMaster s = split_master(expected[i].p);
      ASSERT_EQ(arrays.hi[i], s.hi);
      ASSERT_EQ(arrays.lo[i], s.lo);
    }
  }
  for (size_t i = 0; i < offset; ++i) ASSERT_EQ(bits(arrays.weight(i)), bits(expected[i].p)) << "before the range";
}

TEST(AdamW, EveryInstructionSetGivesTheBitsOfTheScalarReference) {
  const int targets = for_each_target([] {
    for (const size_t n : {0u, 1u, 7u, 15u, 16u, 17u, 63u, 1000u}) {
      for (const size_t offset : {0u, 1u, 3u}) {
        expect_reference_bits<bf16>({.weight_decay = 0.1}, 0.37, n, offset);
        expect_reference_bits<float>({.weight_decay = 0.1}, 0.37, n, offset);
      }
    }
    expect_reference_bits<float>({.beta1 = 0.3, .beta2 = 0.5, .eps = 1e-3}, 1.0, 333, 0);
    expect_reference_bits<bf16>({.beta1 = 0.0, .beta2 = 0.0}, 1.0, 333, 0);
  });
  EXPECT_GE(targets, 1);
  RecordProperty("targets", targets);
}

// Against double arithmetic throughout: the order of operations aside, the formula itself.
TEST(AdamW, FollowsTheFormulaInDouble) {
  Arrays arrays(64);
  std::vector<double> p(64), m(64), v(64);
  std::vector<float> gradient(64);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < 64; ++i) {
    const float start = normal(random);
    arrays.set(i, {start, 0.0f, 0.0f});
    p[i] = start;
  }
  for (int64_t t = 1; t <= 50; ++t) {
    for (auto& g : gradient) g = normal(random);
    const AdamWOptions options{.weight_decay = 0.05};
    adamw_update(adamw_step(options, 1e-3, t, 0.5, true), arrays.view(), gradient.data(), 64, nullptr);
    for (size_t i = 0; i < 64; ++i) {
      const double g = 0.5 * gradient[i];
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      const double mean = m[i] / (1 - std::pow(0.9, t));
      const double variance = v[i] / (1 - std::pow(0.999, t));
      p[i] -= 1e-3 * 0.05 * p[i] + 1e-3 * mean / (std::sqrt(variance) + 1e-8);
      ASSERT_NEAR(arrays.weight(i), p[i], 1e-5) << "step " << t;
    }
  }
}

TEST(AdamW, ThreadsDoNotChangeABit) {
  constexpr size_t kCount = 100'003;
  Arrays start(kCount);
  std::vector<bf16> gradient(kCount);
  std::mt19937 random(11);
  for (size_t i = 0; i < kCount; ++i) {
    start.set(i, {wild(random), 0.0f, 0.0f});
    gradient[i] = to_bf16(wild(random));
  }
  const AdamWStep step = adamw_step({.weight_decay = 0.1}, 1e-3, 1, 0.5, true);
  Arrays alone = start;
  adamw_update(step, alone.view(), gradient.data(), kCount, nullptr);
  ASSERT_NE(alone, start);
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    Arrays shared = start;
    adamw_update(step, shared.view(), gradient.data(), kCount, &pool);
    EXPECT_EQ(shared.hi, alone.hi) << threads;
    EXPECT_EQ(shared.lo, alone.lo) << threads;
    EXPECT_EQ(std::memcmp(shared.m.data(), alone.m.data(), kCount * sizeof(float)), 0) << threads;
    EXPECT_EQ(std::memcmp(shared.v.data(), alone.v.data(), kCount * sizeof(float)), 0) << threads;
  }
}

TEST(AdamW, RateZeroMovesOnlyTheMoments) {
  Arrays arrays(100);
  std::mt19937 random(3);
  std::vector<float> gradient(100, 0.25f);
  for (size_t i = 0; i < 100; ++i) arrays.set(i, {wild(random) + 1e-44f, 0.0f, 0.0f});
  const Arrays before = arrays;
  adamw_update(adamw_step({.weight_decay = 0.1}, 0.0, 1, 1.0, true), arrays.view(), gradient.data(), 100, nullptr);
  EXPECT_EQ(arrays.hi, before.hi);
  EXPECT_EQ(arrays.lo, before.lo);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_FLOAT_EQ(arrays.m[i], 0.025f);
    EXPECT_FLOAT_EQ(arrays.v[i], 0.001f * 0.0625f);
  }
}

TEST(AdamW, ZeroGradientAndStateOnlyDecay) {
  for (const bool decays : {true, false}) {
    Arrays arrays(37);
    for (size_t i = 0; i < 37; ++i) arrays.set(i, {static_cast<float>(i) - 18.0f, 0.0f, 0.0f});
    const std::vector<bf16> gradient(37);
    adamw_update(adamw_step({.weight_decay = 0.5}, 0.25, 1, 1.0, decays), arrays.view(), gradient.data(), 37, nullptr);
    for (size_t i = 0; i < 37; ++i) {
      EXPECT_EQ(arrays.weight(i), (static_cast<float>(i) - 18.0f) * (decays ? 0.875f : 1.0f));
      EXPECT_EQ(arrays.m[i], 0.0f);
      EXPECT_EQ(arrays.v[i], 0.0f);
    }
  }
}

TEST(AdamW, KeepsDenormals) {
  Arrays arrays(1);
  arrays.set(0, {1e-40f, 0.0f, 0.0f});
  const float gradient = 1e-40f;
  adamw_update(adamw_step({}, 0.0, 1, 1.0, true), arrays.view(), &gradient, 1, nullptr);
  EXPECT_EQ(arrays.weight(0), 1e-40f);
  EXPECT_NEAR(arrays.m[0] / 1e-41f, 1.0f, 1e-3f);
}

TEST(AdamW, BiasCorrectionAtTheFirstAndTheMillionthUpdate) {
  const AdamWStep first = adamw_step({}, 1e-3, 1, 1.0, true);
  EXPECT_DOUBLE_EQ(first.bias_correction1, 0.1);
  EXPECT_NEAR(first.bias_correction2, 1e-3, 1e-15);
  const AdamWStep late = adamw_step({}, 1e-3, 1'000'000, 1.0, true);
  EXPECT_EQ(late.bias_correction1, 1.0);
  EXPECT_EQ(late.bias_correction2, 1.0);
  // The first step of any gradient that stands clear of eps is lr against its sign.
  for (const float gradient : {1e-3f, -1.0f, 1e15f}) {
    Arrays arrays(1);
    adamw_update(first, arrays.view(), &gradient, 1, nullptr);
    EXPECT_NEAR(arrays.weight(0), -std::copysign(1e-3f, gradient), 1e-7f) << gradient;
  }
}

TEST(AdamW, ExtremeGradientsLeaveFiniteWeights) {
  for (const float gradient : {1e-45f, 1e-30f, 1e30f, -1e30f}) {
    Arrays arrays(1);
    arrays.set(0, {0.5f, 0.0f, 0.0f});
    for (int64_t t = 1; t <= 3; ++t) {
      adamw_update(adamw_step({}, 1e-3, t, 1.0, true), arrays.view(), &gradient, 1, nullptr);
    }
    EXPECT_NEAR(arrays.weight(0), 0.5f, 4e-3f) << gradient;
  }
}

TEST(AdamW, RefusesOptionsOutsideTheirRange) {
  EXPECT_NO_THROW(check(AdamWOptions{}));
  EXPECT_NO_THROW(check(AdamWOptions{.beta1 = 0.0, .beta2 = 0.0}));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {-0.1, 1.0, nan}) {
    EXPECT_THROW(check(AdamWOptions{.beta1 = bad}), UsageError);
    EXPECT_THROW(check(AdamWOptions{.beta2 = bad}), UsageError);
  }
  for (const double bad : {0.0, -1e-8, 1e-60, nan}) EXPECT_THROW(check(AdamWOptions{.eps = bad}), UsageError);
  for (const double bad : {-1.0, nan}) EXPECT_THROW(check(AdamWOptions{.weight_decay = bad}), UsageError);
}

}  // namespace
}  // namespace lazytrain::optim
