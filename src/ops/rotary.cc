#include "ops/rotary.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

// What one call rotates: rows of `in` to rows of `out`, by -angle where `inverse`, adding where `add`.
#ifndef LAZYTRAIN_OPS_ROTARY_CALL
#define LAZYTRAIN_OPS_ROTARY_CALL
namespace lazytrain::ops::rotary {
struct Call {
  TensorView in;
  TensorView out;
  std::span<const int32_t> positions;
  std::span<const float> inv_freq;
  int64_t heads;
  int64_t head_dim;
  float scaling;
  bool inverse;
  bool add;
};
}  // namespace lazytrain::ops::rotary
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rotary.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lazytrain::ops::rotary::HWY_NAMESPACE {
using namespace lazytrain::ops::vec::HWY_NAMESPACE;

using DD = hn::ScalableTag<double>;
using DFHalf = hn::Rebind<float, DD>;
using VFHalf = hn::Vec<DFHalf>;

constexpr int64_t kChunk = 64;  // frequencies whose cos and sin are held at a time

// cos and sin of fp32 angles, absolute error below 1e-7. The angle is reduced to |r| <= pi/4 in double, so positions
// of millions keep it; minimax polynomials in r², errors 4e-9 and 6e-11 before rounding.
HWY_INLINE void CosSin(VFHalf angle, VFHalf& cosine, VFHalf& sine) {
  const DD dd;
  const DFHalf d;
  const hn::RebindToSigned<DFHalf> di;
  const auto wide = hn::PromoteTo(dd, angle);
  const auto quarter_turns = hn::Round(hn::Mul(wide, hn::Set(dd, 0.63661977236758134308)));
  const auto rest = hn::Sub(wide, hn::Mul(quarter_turns, hn::Set(dd, 1.57079632679489661923)));
  const VFHalf r = hn::DemoteTo(d, rest);
  const auto quadrant = hn::DemoteTo(di, quarter_turns);
  const VFHalf s = hn::Mul(r, r);
  VFHalf sin_r = hn::MulAdd(s, hn::Set(d, -0.00019501822f), hn::Set(d, 0.0083320169f));
  sin_r = hn::MulAdd(sin_r, s, hn::Set(d, -0.16666651f));
  sin_r = hn::MulAdd(hn::Mul(sin_r, s), r, r);
  VFHalf cos_r = hn::MulAdd(s, hn::Set(d, 2.4372679e-5f), hn::Set(d, -0.0013886529f));
  cos_r = hn::MulAdd(cos_r, s, hn::Set(d, 0.041666612f));
  cos_r = hn::MulAdd(cos_r, s, hn::Set(d, -0.5f));
  cos_r = hn::MulAdd(cos_r, s, hn::Set(d, 1.0f));
  const auto one = hn::Set(di, 1), two = hn::Set(di, 2);
  const auto odd = hn::RebindMask(d, hn::Eq(hn::And(quadrant, one), one));
  const auto sin_sign = hn::BitCast(d, hn::ShiftLeft<30>(hn::And(quadrant, two)));
  const auto cos_sign = hn::BitCast(d, hn::ShiftLeft<30>(hn::And(hn::Add(quadrant, one), two)));
  sine = hn::Xor(hn::IfThenElse(odd, cos_r, sin_r), sin_sign);
  cosine = hn::Xor(hn::IfThenElse(odd, sin_r, cos_r), cos_sign);
}

// Fills cosine and sine, [kChunk], for `count` frequencies.
HWY_INLINE void Table(float position, const float* inv_freq, int64_t count, const Call& call, float* cosine,
                      float* sine) {
  const DFHalf d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN float angles[kChunk] = {};
  for (int64_t j = 0; j < count; ++j) angles[j] = position * inv_freq[j];
  const VFHalf cos_scale = hn::Set(d, call.scaling),
               sin_scale = hn::Set(d, call.inverse ? -call.scaling : call.scaling);
  for (int64_t j = 0; j < count; j += step) {
    VFHalf c, s;
    CosSin(hn::Load(d, angles + j), c, s);
    hn::Store(hn::Mul(c, cos_scale), d, cosine + j);
    hn::Store(hn::Mul(s, sin_scale), d, sine + j);
  }
}

template <typename T>
HWY_INLINE void Put(VF v, T* to, bool add, int64_t n) {
  if (add) v = hn::Add(v, load_part(to, n));
  store_part(v, to, n);
}

// Memory bound: moves 4 heads d bytes a token in bf16; the table of a token is computed once for all heads.
template <typename T>
void Rows(const Call& call, int64_t begin, int64_t end) {
  HWY_ALIGN float cosine[kChunk] = {}, sine[kChunk] = {};
  const auto half = static_cast<int64_t>(call.inv_freq.size());
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t first = 0; first < half; first += kChunk) {
      const int64_t count = HWY_MIN(kChunk, half - first);
      Table(static_cast<float>(call.positions[static_cast<size_t>(t)]), call.inv_freq.data() + first, count, call,
            cosine, sine);
      for (int64_t h = 0; h < call.heads; ++h) {
        const T* x = call.in.row<T>(t) + h * call.head_dim + first;
        T* y = call.out.row<T>(t) + h * call.head_dim + first;
        for_columns(count, [&](int64_t c, int64_t n) {
          const VF low = load_part(x + c, n), high = load_part(x + half + c, n);
          const VF cosines = load(cosine + c), sines = load(sine + c);
          Put(hn::NegMulAdd(high, sines, hn::Mul(low, cosines)), y + c, call.add, n);
          Put(hn::MulAdd(low, sines, hn::Mul(high, cosines)), y + half + c, call.add, n);
        });
      }
    }
    const int64_t rest = call.head_dim - 2 * half;
    for (int64_t h = 0; rest > 0 && h < call.heads; ++h) {
      const T* x = call.in.row<T>(t) + h * call.head_dim + 2 * half;
      T* y = call.out.row<T>(t) + h * call.head_dim + 2 * half;
      for_columns(rest, [&](int64_t c, int64_t n) { Put(load_part(x + c, n), y + c, call.add, n); });
    }
  }
}

void Rotate(const Call& call, int64_t begin, int64_t end) {
  if (call.in.dtype == DType::kBF16) {
    Rows<bf16>(call, begin, end);
  } else {
    Rows<float>(call, begin, end);
  }
}

}  // namespace lazytrain::ops::rotary::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lazytrain::ops {
namespace rotary {
HWY_EXPORT(Rotate);

namespace {
void rotate(const CpuContext& context, const Call& call) {
  context.pool->parallel_for(call.in.rows, 8, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Rotate)(call, begin, end);
  });
}
}  // namespace
}  // namespace rotary

Rotary::Rotary(int64_t heads, int64_t head_dim, std::vector<float> inv_freq, float attention_scaling)
    : heads_(heads), head_dim_(head_dim), inv_freq_(std::move(inv_freq)), attention_scaling_(attention_scaling) {
  if (inv_freq_.empty() || 2 * static_cast<int64_t>(inv_freq_.size()) > head_dim) {
    throw UsageError("rotary: {} frequencies do not fit a head of {} dimensions, expected 1 to {}", inv_freq_.size(),
                     head_dim, head_dim / 2);
  }
}

graph::Work Rotary::forward_work(const graph::Dims& dims) const {
  const double elements = static_cast<double>(dims.tokens) * static_cast<double>(heads_ * head_dim_);
  return {.flops = 3 * elements, .bytes = 2 * elements * static_cast<double>(dims.activation_bytes)};
}

graph::Work Rotary::backward_work(const graph::Dims& dims) const { return forward_work(dims); }

void Rotary::forward(const CpuContext& context, const ForwardArgs& args) const {
  rotary::rotate(context, {.in = args.in[0],
                           .out = args.out[0],
                           .positions = context.tokens->positions,
                           .inv_freq = inv_freq_,
                           .heads = heads_,
                           .head_dim = head_dim_,
                           .scaling = attention_scaling_,
                           .inverse = false,
                           .add = false});
}

void Rotary::backward(const CpuContext& context, const BackwardArgs& args) const {
  if (args.in_grad[0].empty()) return;
  rotary::rotate(context, {.in = args.out_grad[0],
                           .out = args.in_grad[0],
                           .positions = context.tokens->positions,
                           .inv_freq = inv_freq_,
                           .heads = heads_,
                           .head_dim = head_dim_,
                           .scaling = attention_scaling_,
                           .inverse = true,
                           .add = args.add_in_grad[0]});
}

}  // namespace lazytrain::ops
#endif  // HWY_ONCE
