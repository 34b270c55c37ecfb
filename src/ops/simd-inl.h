// Vector helpers of the row ops and of attention, compiled once per instruction set: include after hwy/highway.h.
// Everything is fp32 in registers; bf16 exists in memory only.
#if defined(LAZYTRAIN_OPS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAZYTRAIN_OPS_SIMD_INL_H_
#undef LAZYTRAIN_OPS_SIMD_INL_H_
#else
#define LAZYTRAIN_OPS_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace lazytrain::ops::vec::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
using DI = hn::RebindToSigned<DF>;
using DU32 = hn::RebindToUnsigned<DF>;
using DU16 = hn::Rebind<uint16_t, DF>;

HWY_INLINE int64_t lanes() { return static_cast<int64_t>(hn::Lanes(DF())); }

HWY_INLINE VF load(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE VF load(const bf16* p) {
  const auto bits = hn::LoadU(DU16(), reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(DU32(), bits)));
}

// The bits of to_bf16() (base/dtype.h) in the low half of each lane.
HWY_INLINE hn::Vec<DU32> bf16_bits(VF v) {
  const DU32 du;
  const auto bits = hn::BitCast(du, v);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fff)), hn::And(upper, hn::Set(du, 1))));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), hn::Or(upper, hn::Set(du, 0x40)), rounded);
}
HWY_INLINE void store(VF v, float* p) { hn::StoreU(v, DF(), p); }
HWY_INLINE void store(VF v, bf16* p) {
  hn::StoreU(hn::TruncateTo(DU16(), bf16_bits(v)), DU16(), reinterpret_cast<uint16_t*>(p));
}
// The value as it is after a store in T.
template <typename T>
HWY_INLINE VF rounded(VF v) {
  if constexpr (sizeof(T) == 4) {
    return v;
  } else {
    return hn::BitCast(DF(), hn::ShiftLeft<16>(bf16_bits(v)));
  }
}

// The first n < lanes() elements; the lanes behind are zero and are not read or written in memory.
template <typename T>
HWY_INLINE VF load_n(const T* p, int64_t n) {
  HWY_ALIGN T buffer[hn::MaxLanes(DF())] = {};
  for (int64_t i = 0; i < n; ++i) buffer[i] = p[i];
  return load(buffer);
}
template <typename T>
HWY_INLINE void store_n(VF v, T* p, int64_t n) {
  HWY_ALIGN T buffer[hn::MaxLanes(DF())];
  store(v, buffer);
  for (int64_t i = 0; i < n; ++i) p[i] = buffer[i];
}

// Calls body(column, n) for vectors of n elements that cover `cols`; only the last may have n < lanes().
template <typename Body>
HWY_INLINE void for_columns(int64_t cols, const Body& body) {
  const int64_t step = lanes();
  int64_t c = 0;
  for (; c + step <= cols; c += step) body(c, step);
  if (c < cols) body(c, cols - c);
}
// Loads and stores for such a body.
template <typename T>
HWY_INLINE VF load_part(const T* p, int64_t n) {
  return HWY_LIKELY(n == lanes()) ? load(p) : load_n(p, n);
}
template <typename T>
HWY_INLINE void store_part(VF v, T* p, int64_t n) {
  if (HWY_LIKELY(n == lanes())) {
    store(v, p);
  } else {
    store_n(v, p, n);
  }
}

// 2^n for whole n in [-126, 127].
HWY_INLINE VF power_of_two(VF n) {
  const DI di;
  return hn::BitCast(DF(), hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127))));
}
// 2^f, |f| <= 1/2: minimax polynomial of degree 6, relative error 2e-9 before rounding; exactly 1 at 0.
HWY_INLINE VF exp2_fraction(VF f) {
  const DF d;
  VF y = hn::Set(d, 0.00015345812f);
  y = hn::MulAdd(y, f, hn::Set(d, 0.0013399931f));
  y = hn::MulAdd(y, f, hn::Set(d, 0.0096184891f));
  y = hn::MulAdd(y, f, hn::Set(d, 0.055503286f));
  y = hn::MulAdd(y, f, hn::Set(d, 0.24022646f));
  y = hn::MulAdd(y, f, hn::Set(d, 0.69314718f));
  return hn::MulAdd(y, f, hn::Set(d, 1.0f));
}
// 2^t for t <= 127; exactly 0 below -126. A NaN stays a NaN: what is not finite must reach the loss.
HWY_INLINE VF exp2(VF t) {
  const DF d;
  const VF lowest = hn::Set(d, -126.0f);
  const auto tiny = hn::Lt(t, lowest);
  const VF n = hn::Round(hn::Max(lowest, t));
  const VF f = hn::Sub(t, n);
  return hn::IfThenZeroElse(tiny, hn::Mul(exp2_fraction(f), power_of_two(n)));
}
// 1 / (1 + e^-x). Beyond |x| = 87 the exponential is held inside the range of fp32.
HWY_INLINE VF sigmoid(VF x) {
  const DF d;
  const VF limit = hn::Set(d, 87.0f);
  const VF clamped = hn::IfThenElse(hn::Gt(hn::Abs(x), limit), hn::CopySign(limit, x), x);
  const VF log2e_high = hn::Set(d, -1.4426950f), log2e_low = hn::Set(d, -1.9259630e-8f);
  const VF n = hn::Round(hn::Mul(clamped, log2e_high));
  const VF f = hn::MulAdd(clamped, log2e_low, hn::MulSub(clamped, log2e_high, n));
  const VF e = hn::Mul(exp2_fraction(f), power_of_two(n));
  return hn::Div(hn::Set(d, 1.0f), hn::Add(hn::Set(d, 1.0f), e));
}

}  // namespace lazytrain::ops::vec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LAZYTRAIN_OPS_SIMD_INL_H_
