// Loads and stores of base/dtype.h's types as vectors, for the kernels of this room: the same integer arithmetic as the
// scalar functions there, bit for bit. Included once per instruction set (hence no #pragma once).
#if defined(LAZYTRAIN_OPTIM_SIMD_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAZYTRAIN_OPTIM_SIMD_CONVERT_INL_H_
#undef LAZYTRAIN_OPTIM_SIMD_CONVERT_INL_H_
#else
#define LAZYTRAIN_OPTIM_SIMD_CONVERT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace lazytrain::optim {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The bits of Lanes(d) bf16 values in 32-bit lanes. D is any tag with that many lanes.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint32_t, D>> load_bits(D, const bf16* from) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  return hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from)));
}

// The low halves of 32-bit lanes, which must hold at most 0xffff.
template <class D>
HWY_INLINE void store_bits(D, hn::Vec<hn::Rebind<uint32_t, D>> bits, bf16* to) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<int32_t, D> di32;
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, bits)), d16, reinterpret_cast<uint16_t*>(to));
}

template <class D>  // D: float lanes
HWY_INLINE hn::Vec<D> load_float(D d, const bf16* from) {
  return hn::BitCast(d, hn::ShiftLeft<16>(load_bits(d, from)));
}
template <class D>
HWY_INLINE hn::Vec<D> load_float(D d, const float* from) {
  return hn::LoadU(d, from);
}

// merge_master.
template <class D>
HWY_INLINE hn::Vec<D> load_master(D d, const bf16* hi, const int16_t* lo) {
  const hn::Rebind<int16_t, D> di16;
  const hn::Rebind<int32_t, D> di32;
  const auto upper = hn::BitCast(di32, hn::ShiftLeft<16>(load_bits(d, hi)));
  return hn::BitCast(d, hn::Add(upper, hn::PromoteTo(di32, hn::LoadU(di16, lo))));
}

// split_master of what is not a NaN. The remainder is the low half of the bits, read as signed.
template <class D>
HWY_INLINE void store_master(D, hn::Vec<D> weight, bf16* hi, int16_t* lo) {
  const hn::Rebind<uint16_t, D> du16;
  const hn::Rebind<uint32_t, D> du32;
  const auto bits = hn::BitCast(du32, weight);
  const auto upper = hn::ShiftRight<16>(hn::Add(bits, hn::Set(du32, 0x8000u)));
  hn::StoreU(hn::TruncateTo(du16, upper), du16, reinterpret_cast<uint16_t*>(hi));
  hn::StoreU(hn::TruncateTo(du16, bits), du16, reinterpret_cast<uint16_t*>(lo));
}

// The same for two vectors that follow each other: hi is the upper half of the bits, plus 1 where lo is negative.
template <class D>
HWY_INLINE void store_two_masters(D d, hn::Vec<D> lower, hn::Vec<D> upper, bf16* hi, int16_t* lo) {
#if HWY_TARGET == HWY_SCALAR
  store_master(d, lower, hi, lo);
  store_master(d, upper, hi + 1, lo + 1);
#else
  (void)d;
  const hn::Repartition<uint16_t, D> du16;
  const auto a = hn::BitCast(du16, lower), b = hn::BitCast(du16, upper);
  const auto remainder = hn::ConcatEven(du16, b, a);
  const auto rounded = hn::Add(hn::ConcatOdd(du16, b, a), hn::ShiftRight<15>(remainder));
  hn::StoreU(rounded, du16, reinterpret_cast<uint16_t*>(hi));
  hn::StoreU(remainder, du16, reinterpret_cast<uint16_t*>(lo));
#endif
}

// to_bf16: nearest even, a NaN stays a quiet NaN. (Highway's own demotion to bfloat16 truncates.)
template <class D>
HWY_INLINE void store_rounded(D d, hn::Vec<D> value, bf16* to) {
  const hn::Rebind<int32_t, D> di32;
  const hn::Rebind<uint32_t, D> du32;
  const auto bits = hn::BitCast(du32, value);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(du32, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du32, 0x7fffu))));
  const auto magnitude = hn::BitCast(di32, hn::And(bits, hn::Set(du32, 0x7fffffffu)));
  const auto is_nan = hn::RebindMask(du32, hn::Gt(magnitude, hn::Set(di32, 0x7f800000)));
  store_bits(d, hn::IfThenElse(is_nan, hn::Or(upper, hn::Set(du32, 0x40u)), rounded), to);
}

}  // namespace HWY_NAMESPACE
}  // namespace lazytrain::optim
HWY_AFTER_NAMESPACE();

#endif  // include toggle
