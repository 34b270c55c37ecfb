#include "optim/adamw8_kernel.h"

#include <algorithm>

#include "optim/moments8.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/adamw8_kernel.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "optim/moments8-inl.h"
#include "optim/simd_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lazytrain::optim {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Elements that one turn of the inner loop handles: a cache line of codes, two of the weight halves.
constexpr int64_t kGroup = kSmallestBlock;
using Floats = hn::CappedTag<float, static_cast<size_t>(kGroup)>;
using VecF = hn::Vec<Floats>;

template <typename Gradient>
struct Arrays {
  bf16* hi;
  int16_t* lo;
  int8_t* m;
  uint8_t* v;
  const Gradient* gradient;

  Arrays at(int64_t i) const { return {hi + i, lo + i, m + i, v + i, gradient + i}; }
};

// New moments of a block before they are quantised.
struct Fresh {
  float* m;
  float* root;  // sqrt(v)

  Fresh at(int64_t i) const { return {m + i, root + i}; }
};

// Beyond the end of an array a prefetch does nothing.
constexpr int64_t kAhead = 1024;
template <typename Gradient>
HWY_INLINE void prefetch_group(const Arrays<Gradient>& a) {
  constexpr int64_t kHalves = 64 / sizeof(bf16);
  constexpr int64_t kGradients = 64 / sizeof(Gradient);
  for (int64_t i = kAhead; i < kAhead + kGroup; i += kGradients) hwy::Prefetch(a.gradient + i);
  for (int64_t i = kAhead; i < kAhead + kGroup; i += kHalves) {
    hwy::Prefetch(a.hi + i);
    hwy::Prefetch(a.lo + i);
  }
  hwy::Prefetch(a.m + kAhead);
  hwy::Prefetch(a.v + kAhead);
}

// Scales of a block, or what they turn into, in every lane.
struct Pair {
  VecF m;
  VecF root;
};

// One vector: new moments into `fresh`, new weights in place, the largest moments into `largest`. `steps` are the
// scales times m_decay and root_decay.
template <typename Gradient>
HWY_INLINE VecF new_weights(const AdamW8Constants& c, const Pair& steps, const Arrays<Gradient>& a, const Fresh& fresh,
                            Pair& largest) {
  const Floats d;
  const auto limit = hn::Set(d, c.gradient_limit);
  const auto g = hn::Max(hn::Min(load_float(d, a.gradient), limit), hn::Neg(limit));
  const auto of_m = hn::Mul(g, hn::Set(d, c.gradient_to_m));
  const auto of_root = hn::Mul(g, hn::Set(d, c.gradient_to_root));
  const auto old_root = hn::Mul(square(d, a.v), steps.root);

  const auto m = hn::Add(hn::Mul(signed_square(d, a.m), steps.m), of_m);
  const auto root = hn::Sqrt(hn::Add(hn::Mul(old_root, old_root), hn::Mul(of_root, of_root)));
  largest.m = hn::Max(largest.m, hn::Abs(m));
  largest.root = hn::Max(largest.root, root);
  hn::StoreU(m, d, fresh.m);
  hn::StoreU(root, d, fresh.root);

  const auto denominator = hn::Add(hn::Mul(root, hn::Set(d, c.root_to_denominator)), hn::Set(d, c.eps));
  const auto step = hn::Div(hn::Mul(hn::Set(d, c.step_size), m), denominator);
  const auto p = hn::Mul(load_master(d, a.hi, a.lo), hn::Set(d, c.weight_decay));
  return hn::Sub(p, step);
}

template <typename Gradient>
HWY_INLINE void update_vector(const AdamW8Constants& c, const Pair& steps, const Arrays<Gradient>& a,
                              const Fresh& fresh, Pair& largest) {
  store_master(Floats(), new_weights(c, steps, a, fresh, largest), a.hi, a.lo);
}

template <typename Gradient>
HWY_INLINE void update_two(const AdamW8Constants& c, const Pair& steps, const Arrays<Gradient>& a, const Fresh& fresh,
                           Pair& largest) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  const VecF lower = new_weights(c, steps, a, fresh, largest);
  const VecF upper = new_weights(c, steps, a.at(lanes), fresh.at(lanes), largest);
  store_two_masters(Floats(), lower, upper, a.hi, a.lo);
}

// One vector: codes of the new moments.
HWY_INLINE void quantize_vector(const Pair& factors, const Fresh& fresh, int8_t* m, uint8_t* v) {
  const Floats d;
  const auto root = hn::LoadU(d, fresh.root);
  store_m_codes(d, hn::LoadU(d, fresh.m), factors.m, m);
  store_v_codes(d, root, factors.root, dither_of(d, root), v);
}

HWY_INLINE Pair steps_of(const AdamW8Constants& c, const float* scales) {
  const Floats d;
  return {hn::Set(d, scales[0] * c.m_decay), hn::Set(d, scales[1] * c.root_decay)};
}

HWY_INLINE Pair factors_of(const float* scales) {
  const Floats d;
  const BlockFactors factors(scales[0], scales[1]);
  return {hn::Set(d, factors.m), hn::Set(d, factors.root)};
}

HWY_INLINE Pair nothing() { return {hn::Zero(Floats()), hn::Zero(Floats())}; }

HWY_INLINE void store_scales(const Pair& largest, float* scales) {
  const Floats d;
  const float m = hn::GetLane(hn::MaxOfLanes(d, largest.m));
  scales[0] = m < kSmallestScaleOfM ? 0.0f : m;
  scales[1] = hn::GetLane(hn::MaxOfLanes(d, largest.root));
}

// A block whose new moments are known and whose codes are not yet.
struct Unquantized {
  Fresh fresh;
  int8_t* m;
  uint8_t* v;
  const float* scales;  // new
};

// Updates a whole block of n elements and, in the same loop, quantises the block before it: roots and divisions of the
// one fill the gaps of the other, and no one waits for the largest element of a block.
template <bool kQuantize, typename Gradient>
HWY_INLINE void pass(const AdamW8Constants& c, const Arrays<Gradient>& a, float* scales, const Fresh& fresh, int64_t n,
                     const Unquantized& before) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  const Pair steps = steps_of(c, scales);
  Pair largest = nothing(), factors = nothing();
  if constexpr (kQuantize) factors = factors_of(before.scales);
  for (int64_t group = 0; group < n; group += kGroup) {
    prefetch_group(a.at(group));
    for (int64_t i = group; i < group + kGroup; i += 2 * lanes) {
      update_two(c, steps, a.at(i), fresh.at(i), largest);
      if constexpr (kQuantize) {
        quantize_vector(factors, before.fresh.at(i), before.m + i, before.v + i);
        quantize_vector(factors, before.fresh.at(i + lanes), before.m + i + lanes, before.v + i + lanes);
      }
    }
  }
  store_scales(largest, scales);
}

HWY_INLINE void quantize(const Unquantized& block, int64_t n) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  const Pair factors = factors_of(block.scales);
  for (int64_t i = 0; i < n; i += lanes) {
    quantize_vector(factors, block.fresh.at(i), block.m + i, block.v + i);
  }
}

// The last, incomplete block of a parameter: copied out, padded with zeros (which leave the scales alone and stay
// zeros), and back.
template <typename Gradient>
HWY_NOINLINE void partial_block(const AdamW8Constants& c, const Arrays<Gradient>& a, float* scales, const Fresh& fresh,
                                int64_t n) {
  const Floats d;
  constexpr int64_t kMost = hn::MaxLanes(d);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Pair steps = steps_of(c, scales);
  Pair largest = nothing();
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) update_vector(c, steps, a.at(i), fresh.at(i), largest);
  const int64_t rest = n - i;
  bf16 hi[kMost] = {};
  int16_t lo[kMost] = {};
  int8_t m[kMost] = {};
  uint8_t v[kMost] = {};
  Gradient gradient[kMost] = {};
  const Arrays<Gradient> last = a.at(i);
  std::copy_n(last.hi, rest, hi);
  std::copy_n(last.lo, rest, lo);
  std::copy_n(last.m, rest, m);
  std::copy_n(last.v, rest, v);
  std::copy_n(last.gradient, rest, gradient);
  update_vector(c, steps, Arrays<Gradient>{hi, lo, m, v, gradient}, fresh.at(i), largest);
  std::copy_n(hi, rest, last.hi);
  std::copy_n(lo, rest, last.lo);

  store_scales(largest, scales);
  quantize({fresh, a.m, a.v, scales}, i);
  quantize({fresh.at(i), m, v, scales}, lanes);
  std::copy_n(m, rest, last.m);
  std::copy_n(v, rest, last.v);
}

template <typename Gradient>
HWY_INLINE void update_range(const AdamW8Constants& constants, const Arrays<Gradient>& a, float* scales, int64_t block,
                             int64_t n) {
  // A copy that nothing can alias: the constants stay in registers.
  const AdamW8Constants c = constants;
  alignas(64) float space[4 * kLargestBlock];  // for two blocks; a vector at the end of one reaches no further
  const auto fresh_of = [&](int64_t b) {
    float* at = space + b % 2 * 2 * block;
    return Fresh{at, at + block};
  };
  const int64_t whole = n / block;
  Unquantized before{};
  for (int64_t b = 0; b < whole; ++b) {
    const Arrays<Gradient> at = a.at(b * block);
    const Fresh fresh = fresh_of(b);
    if (before.m != nullptr) {
      pass<true>(c, at, scales + 2 * b, fresh, block, before);
    } else {
      pass<false>(c, at, scales + 2 * b, fresh, block, before);
    }
    before = {fresh, at.m, at.v, scales + 2 * b};
  }
  if (before.m != nullptr) quantize(before, block);
  if (whole * block < n) {
    partial_block(c, a.at(whole * block), scales + 2 * whole, fresh_of(0), n - whole * block);
  }
}

void UpdateBf16(const AdamW8Constants& c, bf16* hi, int16_t* lo, const Moments8& moments, const bf16* gradient,
                int64_t n) {
  update_range<bf16>(c, {hi, lo, moments.m, moments.v, gradient}, moments.scales, moments.block, n);
}
void UpdateFloat(const AdamW8Constants& c, bf16* hi, int16_t* lo, const Moments8& moments, const float* gradient,
                 int64_t n) {
  update_range<float>(c, {hi, lo, moments.m, moments.v, gradient}, moments.scales, moments.block, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace lazytrain::optim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lazytrain::optim {

HWY_EXPORT(UpdateBf16);
HWY_EXPORT(UpdateFloat);

void adamw8_kernel(const AdamW8Constants& constants, bf16* hi, int16_t* lo, const Moments8& moments,
                   const bf16* gradient, int64_t n) {
  HWY_DYNAMIC_DISPATCH(UpdateBf16)(constants, hi, lo, moments, gradient, n);
}
void adamw8_kernel(const AdamW8Constants& constants, bf16* hi, int16_t* lo, const Moments8& moments,
                   const float* gradient, int64_t n) {
  HWY_DYNAMIC_DISPATCH(UpdateFloat)(constants, hi, lo, moments, gradient, n);
}

}  // namespace lazytrain::optim
#endif  // HWY_ONCE
