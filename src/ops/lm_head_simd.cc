#include "ops/lm_head_simd.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/lm_head_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// after highway.h
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lazytrain::ops::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;

float RowMax(const float* x, int64_t n) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  float best = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
  if (n >= lanes) {
    auto m = hn::LoadU(d, x);
    for (i = lanes; i + lanes <= n; i += lanes) m = hn::Max(m, hn::LoadU(d, x + i));
    best = hn::GetLane(hn::MaxOfLanes(d, m));
  }
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

// Highway's Exp turns a NaN into 0, which would hide a broken row, and its argument has to fit an integer.
HWY_INLINE hn::Vec<DF> exp_or_nan(DF d, hn::Vec<DF> x) {
  const auto lowest = hn::Set(d, -120.0f);  // exp is 0 from -104 on
  const auto e = hn::Exp(d, hn::IfThenElse(hn::Gt(x, lowest), x, lowest));
  return hn::IfThenElse(hn::IsNaN(x), x, e);
}

HWY_INLINE hn::Vec<DF> exp_of(DF d, const float* x, hn::Vec<DF> max) {
  return exp_or_nan(d, hn::Sub(hn::LoadU(d, x), max));
}

// A partial vector, padded with values whose exp is 0.
HWY_INLINE hn::Vec<DF> exp_of_rest(DF d, const float* x, int64_t n, hn::Vec<DF> max) {
  HWY_ALIGN float rest[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(hn::Set(d, -std::numeric_limits<float>::infinity()), d, rest);
  for (int64_t i = 0; i < n; ++i) rest[i] = x[i];
  const auto v = hn::Sub(hn::Load(d, rest), max);
  return hn::IfThenElseZero(hn::Lt(hn::Iota(d, 0), hn::Set(d, static_cast<float>(n))), exp_or_nan(d, v));
}

float SumExp(const float* x, int64_t n, float max) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto m = hn::Set(d, max);
  auto even = hn::Zero(d), odd = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    even = hn::Add(even, exp_of(d, x + i, m));
    odd = hn::Add(odd, exp_of(d, x + i + lanes, m));
  }
  for (; i + lanes <= n; i += lanes) even = hn::Add(even, exp_of(d, x + i, m));
  if (i < n) odd = hn::Add(odd, exp_of_rest(d, x + i, n - i, m));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
}

void ScaledExp(float* x, int64_t n, float max, float factor) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto m = hn::Set(d, max);
  const auto f = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Mul(exp_of(d, x + i, m), f), d, x + i);
  if (i == n) return;
  HWY_ALIGN float rest[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(hn::Mul(exp_of_rest(d, x + i, n - i, m), f), d, rest);
  for (int64_t j = 0; i < n; ++i, ++j) x[i] = rest[j];
}

}  // namespace lazytrain::ops::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lazytrain::ops::simd {

HWY_EXPORT(RowMax);
HWY_EXPORT(SumExp);
HWY_EXPORT(ScaledExp);

RowStats merge(const RowStats& a, const RowStats& b) {
  if (a.sum == 0) return b;
  if (b.sum == 0) return a;
  const float max = a.max > b.max ? a.max : b.max;
  return {max, a.sum * std::exp(static_cast<double>(a.max) - max) + b.sum * std::exp(static_cast<double>(b.max) - max)};
}

void add_to_stats(const float* logits, int64_t n, RowStats& stats) {
  const float max = HWY_DYNAMIC_DISPATCH(RowMax)(logits, n);
  stats = merge(stats, {max, HWY_DYNAMIC_DISPATCH(SumExp)(logits, n, max)});
}

void scaled_exp(float* x, int64_t n, float max, float factor) { HWY_DYNAMIC_DISPATCH(ScaledExp)(x, n, max, factor); }

}  // namespace lazytrain::ops::simd
#endif  // HWY_ONCE
