#include "optim/grad_norm_kernel.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/grad_norm_kernel.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "optim/simd_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lazytrain::optim {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Value i of a block is added to running sum i % kSums, whatever the width of a vector.
constexpr int64_t kSums = 32;

// Elements to prefetch ahead: measured 25% faster. Beyond the end of an array a prefetch does nothing.
constexpr int64_t kAhead = 2048;

// The square of a float is exact in double, so a fused and a separate addition give the same bits.
template <class D, typename T>  // D: double lanes
HWY_INLINE hn::Vec<D> add_square(D d, hn::Vec<D> to, const T* from) {
  const hn::Rebind<float, D> df;
  const auto x = hn::PromoteTo(d, load_float(df, from));
  return hn::MulAdd(x, x, to);
}

// Four vectors of running sums at a time; narrow vectors go over the block again (it is in the first-level cache) for
// the sums they left out.
template <typename T>
HWY_INLINE double sum(const T* values, int64_t n) {
  const hn::CappedTag<double, 8> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = n / kSums * kSums;
  T rest[kSums] = {};  // zeros add nothing
  std::copy(values + whole, values + n, rest);

  double sums[kSums];
  for (int64_t first = 0; first < kSums; first += 4 * lanes) {
    auto s0 = hn::Zero(d);
    auto s1 = hn::Zero(d);
    auto s2 = hn::Zero(d);
    auto s3 = hn::Zero(d);
    const auto add = [&](const T* from) HWY_ATTR {
      s0 = add_square(d, s0, from);
      s1 = add_square(d, s1, from + lanes);
      s2 = add_square(d, s2, from + 2 * lanes);
      s3 = add_square(d, s3, from + 3 * lanes);
    };
    for (int64_t i = first; i < whole; i += kSums) {
      hwy::Prefetch(values + i + kAhead);
      add(values + i);
    }
    add(rest + first);
    hn::StoreU(s0, d, sums + first);
    hn::StoreU(s1, d, sums + first + lanes);
    hn::StoreU(s2, d, sums + first + 2 * lanes);
    hn::StoreU(s3, d, sums + first + 3 * lanes);
  }
  for (int64_t half = kSums / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

double SumBf16(const bf16* values, int64_t n) { return sum(values, n); }
double SumFloat(const float* values, int64_t n) { return sum(values, n); }

double RoundAndSum(const float* in, bf16* out, int64_t n) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hwy::Prefetch(in + i + kAhead);
    store_rounded(d, hn::LoadU(d, in + i), out + i);
  }
  for (; i < n; ++i) out[i] = to_bf16(in[i]);
  return sum(out, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace lazytrain::optim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lazytrain::optim {

HWY_EXPORT(SumBf16);
HWY_EXPORT(SumFloat);
HWY_EXPORT(RoundAndSum);

double sum_block(const bf16* values, int64_t n) { return HWY_DYNAMIC_DISPATCH(SumBf16)(values, n); }
double sum_block(const float* values, int64_t n) { return HWY_DYNAMIC_DISPATCH(SumFloat)(values, n); }
double round_and_sum_block(const float* in, bf16* out, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(RoundAndSum)(in, out, n);
}

}  // namespace lazytrain::optim
#endif  // HWY_ONCE
