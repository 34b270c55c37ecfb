// The 8-bit codes of moments as vectors. Included once per instruction set (hence no #pragma once).
//
// The same bits from every instruction set: only correctly rounded *, + and sqrt in float, no fused multiply-add (the
// build has -ffp-contract=off), largest values (exact in any order), and integer arithmetic. A float becomes an integer
// by adding a power of two that leaves no room, or a fixed room, for its fraction in the mantissa.
#if defined(LAZYTRAIN_OPTIM_MOMENTS8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAZYTRAIN_OPTIM_MOMENTS8_INL_H_
#undef LAZYTRAIN_OPTIM_MOMENTS8_INL_H_
#else
#define LAZYTRAIN_OPTIM_MOMENTS8_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace lazytrain::optim {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// sign(c) c^2, exact.
template <class D>
HWY_INLINE hn::Vec<D> signed_square(D d, const int8_t* codes) {
  const hn::Rebind<int8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  const auto c = hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, codes)));
  return hn::Mul(c, hn::Abs(c));
}

// c^2, exact.
template <class D>
HWY_INLINE hn::Vec<D> square(D d, const uint8_t* codes) {
  const hn::Rebind<uint8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  const auto c = hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, codes)));
  return hn::Mul(c, c);
}

// The low byte of every 32-bit lane.
template <class D>
HWY_INLINE void store_low_bytes(D, hn::Vec<hn::Rebind<uint32_t, D>> lanes, uint8_t* to) {
  const hn::Rebind<uint8_t, D> d8;
  hn::StoreU(hn::TruncateTo(d8, lanes), d8, to);
}

// The integer nearest to +-sqrt(|m| m_factor), which is at most 127: 2^23 + 2^22 + c has c in its low bits, two's
// complement included.
template <class D>
HWY_INLINE void store_m_codes(D d, hn::Vec<D> m, hn::Vec<D> m_factor, int8_t* codes) {
  const hn::Rebind<uint32_t, D> du32;
  const auto x = hn::CopySign(hn::Sqrt(hn::Mul(hn::Abs(m), m_factor)), m);
  store_low_bytes(d, hn::BitCast(du32, hn::Add(x, hn::Set(d, 12582912.0f))), reinterpret_cast<uint8_t*>(codes));
}

// floor(x + u / 2^12), at least 1 where root is not 0, for x = sqrt(root root_factor) to 12 binary places and u the
// integers in [0, 2^12). 2^11 + x has those places at the end of its mantissa. The places also swallow the rounding of
// x of the largest root, which always gets 255.
inline constexpr int kFractionBits = 12;
template <class D>
HWY_INLINE void store_v_codes(D d, hn::Vec<D> root, hn::Vec<D> root_factor, hn::Vec<hn::Rebind<int32_t, D>> u,
                              uint8_t* codes) {
  const hn::Rebind<uint32_t, D> du32;
  const hn::Rebind<int32_t, D> di32;
  const auto zero = hn::Set(d, 2048.0f);
  const auto one = hn::BitCast(di32, hn::Set(d, 2049.0f));
  const auto places = hn::BitCast(di32, hn::Add(hn::Sqrt(hn::Mul(root, root_factor)), zero));
  const auto sum = hn::Add(places, u);
  const auto nonzero = hn::RebindMask(di32, hn::Gt(root, hn::Zero(d)));
  const auto code = hn::IfThenElse(nonzero, hn::Max(sum, one), sum);
  store_low_bytes(d, hn::ShiftRight<kFractionBits>(hn::BitCast(du32, code)), codes);
}

// The last kFractionBits bits of a float: as good as random, and always the same for the same value.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<int32_t, D>> dither_of(D, hn::Vec<D> value) {
  const hn::Rebind<int32_t, D> di32;
  return hn::And(hn::BitCast(di32, value), hn::Set(di32, (1 << kFractionBits) - 1));
}

}  // namespace HWY_NAMESPACE
}  // namespace lazytrain::optim
HWY_AFTER_NAMESPACE();

#endif  // include toggle
