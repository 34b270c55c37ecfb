#include "ops/attention_kernel.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/arith.h"
#include "base/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention_kernel.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/simd-inl.h"
#include "ops/tile_gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lazytrain::ops::attention::HWY_NAMESPACE {
using namespace lazytrain::ops::vec::HWY_NAMESPACE;

constexpr float kLog2e = std::numbers::log2e_v<float>;
constexpr float kLn2 = std::numbers::ln2_v<float>;
constexpr int64_t kSquare = kTile * kTile;

int64_t padded(int64_t head_dim) { return align_up(head_dim, 16); }

// Carves aligned pieces out of scratch.
class Carver {
 public:
  explicit Carver(float* at) : at_(at) {}
  float* take(int64_t floats) {
    float* result = at_;
    at_ += align_up(floats, 16);
    return result;
  }

 private:
  float* at_;
};

// to [rows, padded(cols)] fp32 = from [rows, cols]; the columns behind are zero.
template <typename T>
HWY_INLINE void Widen(const T* from, int64_t stride, int64_t rows, int64_t cols, float* to) {
  const int64_t ld = padded(cols);
  for (int64_t r = 0; r < rows; ++r, from += stride, to += ld) {
    for_columns(cols, [&](int64_t c, int64_t n) { store(load_part(from + c, n), to + c); });
    for (int64_t c = cols; c < ld; ++c) to[c] = 0;
  }
}

// to [cols, kTile] = fromᵀ, from [rows, padded(cols)]; columns of absent rows are zero. Four rows at a time keep the
// stores of a line together.
HWY_INLINE void Transpose(const float* from, int64_t rows, int64_t cols, float* to) {
  const int64_t ld = padded(cols);
  for (int64_t r = 0; r < rows; r += 16) {
    const int64_t count = std::min<int64_t>(16, rows - r);
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t i = 0; i < count; ++i) to[c * kTile + r + i] = from[(r + i) * ld + c];
    }
  }
  if (rows == kTile) return;
  for (int64_t c = 0; c < cols; ++c) std::fill(to + c * kTile + rows, to + (c + 1) * kTile, 0.0f);
}

// Row maxima of `scores` [rows, kTile] times c, at least m_old; only the first limit(r) columns count.
// Then scores = 2^(c scores - m) with zeros behind the limit, and the row sums.
struct SoftmaxRows {
  float* scores;
  int64_t rows;
  int64_t keys;
  bool diagonal;  // row r sees r + 1 keys
  float c;
  float* m;      // in: maximum so far, -inf at first; out: with this tile
  float* l;      // in and out: Σ 2^(c s - m)
  float* alpha;  // out: what earlier sums must be multiplied with
};

HWY_INLINE VF MaskedScores(const SoftmaxRows& s, const float* row, int64_t at, int64_t limit) {
  const DF d;
  const VF v = hn::Load(d, row + at);
  if (HWY_LIKELY(at + lanes() <= limit)) return v;
  return hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(std::max<int64_t>(0, limit - at))), v,
                        hn::Set(d, s.c < 0 ? INFINITY : -INFINITY));
}

HWY_INLINE void Softmax(const SoftmaxRows& s) {
  const DF d;
  const VF c = hn::Set(d, s.c);
  const int64_t step = lanes();
  for (int64_t r = 0; r < s.rows; ++r) {
    float* row = s.scores + r * kTile;
    const int64_t limit = s.diagonal ? std::min(s.keys, r + 1) : s.keys;
    VF top = hn::Set(d, s.m[r]);
    for (int64_t at = 0; at < limit; at += step) top = hn::Max(top, hn::Mul(MaskedScores(s, row, at, limit), c));
    const float m = hn::GetLane(hn::MaxOfLanes(d, top));
    const VF shift = hn::Set(d, m);
    VF sum = hn::Zero(d);
    int64_t at = 0;
    for (; at < limit; at += step) {
      const VF p = exp2(hn::MulSub(MaskedScores(s, row, at, limit), c, shift));
      sum = hn::Add(sum, p);
      hn::Store(p, d, row + at);
    }
    for (; at < kTile; at += step) hn::Store(hn::Zero(d), d, row + at);
    const float alpha = hn::GetLane(exp2(hn::Set(d, s.m[r] - m)));
    s.l[r] = s.l[r] * alpha + hn::GetLane(hn::SumOfLanes(d, sum));
    s.alpha[r] = alpha;
    s.m[r] = m;
  }
}

// o[r] *= factor[r].
HWY_INLINE void ScaleRows(float* o, int64_t rows, int64_t ld, const float* factor) {
  const DF d;
  for (int64_t r = 0; r < rows; ++r, o += ld) {
    if (factor[r] == 1.0f) continue;
    const VF f = hn::Set(d, factor[r]);
    for (int64_t c = 0; c < ld; c += lanes()) hn::Store(hn::Mul(hn::Load(d, o + c), f), d, o + c);
  }
}

template <typename T>
void ForwardTyped(const ForwardBlock& b, float* scratch) {
  const int64_t d = b.head_dim, ld = padded(d), n = b.queries;
  Carver carver(scratch);
  float* k = carver.take(kTile * ld);
  float* kt = carver.take(d * kTile);
  float* v = carver.take(kTile * ld);
  float* scores = carver.take(kSquare);
  float* alpha = carver.take(kTile);
  float* q = carver.take(b.heads * kTile * ld);
  float* o = carver.take(b.heads * kTile * ld);
  float* m = carver.take(b.heads * kTile);
  float* l = carver.take(b.heads * kTile);
  for (int64_t h = 0; h < b.heads; ++h) {
    Widen(static_cast<const T*>(b.q.data) + h * b.q.head_stride, b.q.row_stride, n, d, q + h * kTile * ld);
  }
  std::fill_n(m, b.heads * kTile, -INFINITY);
  std::fill_n(l, b.heads * kTile, 0.0f);
  for (int64_t first = 0; first < b.keys; first += kTile) {
    const int64_t keys = std::min(kTile, b.keys - first);
    const bool diagonal = b.causal && first + keys == b.keys;
    Widen(b.k.row<T>(first), b.k.stride, keys, d, k);
    Transpose(k, keys, d, kt);
    Widen(b.v.row<T>(first), b.v.stride, keys, d, v);
    for (int64_t h = 0; h < b.heads; ++h) {
      float* qh = q + h * kTile * ld;
      float* oh = o + h * kTile * ld;
      multiply<Need::kLowerC, false, false>(diagonal, {n, kTile, d, qh, ld, kt, kTile, scores, kTile});
      Softmax({scores, n, keys, diagonal, b.scale * kLog2e, m + h * kTile, l + h * kTile, alpha});
      const TileGemm weighted{n, ld, keys, scores, kTile, v, ld, oh, ld};
      if (first == 0) {
        multiply<Need::kLowerA, false, false>(diagonal, weighted);
      } else {
        ScaleRows(oh, n, ld, alpha);
        multiply<Need::kLowerA, false, true>(diagonal, weighted);
      }
    }
  }
  for (int64_t h = 0; h < b.heads; ++h) {
    for (int64_t r = 0; r < n; ++r) {
      const float sum = l[h * kTile + r];
      const VF inverse = hn::Set(DF(), 1.0f / sum);
      const float* from = o + (h * kTile + r) * ld;
      T* to = static_cast<T*>(b.out.data) + r * b.out.row_stride + h * b.out.head_stride;
      for_columns(
          d, [&](int64_t c, int64_t count) { store_part(hn::Mul(hn::Load(DF(), from + c), inverse), to + c, count); });
      if (b.lse.data == nullptr) continue;
      static_cast<float*>(b.lse.data)[r * b.lse.row_stride + h * b.lse.head_stride] =
          m[h * kTile + r] * kLn2 + std::log(sum);
    }
  }
}

// p = 2^(c s - lse2) and ds = scale p (dp - delta), both zero behind the limit of each row; s and dp are overwritten.
HWY_INLINE void BackwardScores(float* s, float* dp, int64_t rows, int64_t keys, bool diagonal, float scale,
                               const float* lse2, const float* delta) {
  const DF d;
  const VF c = hn::Set(d, scale * kLog2e), factor = hn::Set(d, scale);
  const int64_t step = lanes();
  for (int64_t r = 0; r < rows; ++r, s += kTile, dp += kTile) {
    const int64_t limit = diagonal ? std::min(keys, r + 1) : keys;
    const VF shift = hn::Set(d, lse2[r]), mean = hn::Set(d, delta[r]);
    int64_t at = 0;
    for (; at < limit; at += step) {
      VF p = exp2(hn::MulSub(hn::Load(d, s + at), c, shift));
      VF ds = hn::Mul(hn::Mul(p, factor), hn::Sub(hn::Load(d, dp + at), mean));
      if (HWY_UNLIKELY(at + step > limit)) {
        const auto seen = hn::FirstN(d, static_cast<size_t>(limit - at));
        p = hn::IfThenElseZero(seen, p);
        ds = hn::IfThenElseZero(seen, ds);
      }
      hn::Store(p, d, s + at);
      hn::Store(ds, d, dp + at);
    }
    for (; at < kTile; at += step) {
      hn::Store(hn::Zero(d), d, s + at);
      hn::Store(hn::Zero(d), d, dp + at);
    }
  }
}

template <typename To>
HWY_INLINE void PutRow(const float* from, To* to, int64_t cols, bool add) {
  for_columns(cols, [&](int64_t c, int64_t n) {
    VF v = hn::LoadU(DF(), from + c);
    if (add) v = hn::Add(v, load_part(to + c, n));
    store_part(v, to + c, n);
  });
}

// Rows of fp32 scratch to `to` [.., cols] from its row `first` on.
HWY_INLINE void Put(const float* from, int64_t ld, const TensorView& to, int64_t first, int64_t rows, bool add) {
  if (to.empty()) return;
  for (int64_t r = 0; r < rows; ++r) {
    if (to.dtype == DType::kBF16) {
      PutRow(from + r * ld, to.row<bf16>(first + r), to.cols, add);
    } else {
      PutRow(from + r * ld, to.row<float>(first + r), to.cols, add);
    }
  }
}

template <typename T>
HWY_INLINE float RowDot(const T* a, const T* b, int64_t cols) {
  VF sum = hn::Zero(DF());
  for_columns(cols, [&](int64_t c, int64_t n) { sum = hn::MulAdd(load_part(a + c, n), load_part(b + c, n), sum); });
  return hn::GetLane(hn::SumOfLanes(DF(), sum));
}

template <typename T>
void BackwardTyped(const BackwardHead& x, float* scratch) {
  const int64_t length = x.q.rows, d = x.q.cols, ld = padded(d);
  Carver carver(scratch);
  float *k = carver.take(kTile * ld), *kt = carver.take(d * kTile), *vt = carver.take(d * kTile);
  float *q = carver.take(kTile * ld), *dout = carver.take(kTile * ld);
  float *p = carver.take(kSquare), *ds = carver.take(kSquare);
  float *dk = carver.take(kTile * ld), *dv = carver.take(kTile * ld);
  float *delta = carver.take(length), *lse2 = carver.take(length), *dq = carver.take(length * ld);
  for (int64_t t = 0; t < length; ++t) {
    delta[t] = RowDot(x.out_grad.row<T>(t), x.out.row<T>(t), d);
    lse2[t] = *x.lse.row<float>(t) * kLog2e;
  }
  for (int64_t first = 0; first < length; first += kTile) {
    const int64_t keys = std::min(kTile, length - first);
    Widen(x.v.row<T>(first), x.v.stride, keys, d, k);
    Transpose(k, keys, d, vt);
    Widen(x.k.row<T>(first), x.k.stride, keys, d, k);
    Transpose(k, keys, d, kt);
    std::fill_n(dk, kTile * ld, 0.0f);
    std::fill_n(dv, kTile * ld, 0.0f);
    for (int64_t t = first; t < length; t += kTile) {
      const int64_t n = std::min(kTile, length - t);
      const bool diagonal = t == first;
      Widen(x.q.row<T>(t), x.q.stride, n, d, q);
      Widen(x.out_grad.row<T>(t), x.out_grad.stride, n, d, dout);
      multiply<Need::kLowerC, false, false>(diagonal, {n, kTile, d, q, ld, kt, kTile, p, kTile});
      multiply<Need::kLowerC, false, false>(diagonal, {n, kTile, d, dout, ld, vt, kTile, ds, kTile});
      BackwardScores(p, ds, n, keys, diagonal, x.scale, lse2 + t, delta + t);
      multiply<Need::kUpperA, true, true>(diagonal, {keys, ld, n, p, kTile, dout, ld, dv, ld});
      multiply<Need::kUpperA, true, true>(diagonal, {keys, ld, n, ds, kTile, q, ld, dk, ld});
      const TileGemm to_dq{n, ld, keys, ds, kTile, k, ld, dq + t * ld, ld};
      if (first == 0) {
        multiply<Need::kLowerA, false, false>(diagonal, to_dq);
      } else {
        multiply<Need::kLowerA, false, true>(diagonal, to_dq);
      }
    }
    Put(dk, ld, x.dk, first, keys, x.add_dk);
    Put(dv, ld, x.dv, first, keys, x.add_dv);
  }
  Put(dq, ld, x.dq, 0, length, x.add_dq);
}

void Forward(const ForwardBlock& block, float* scratch) {
  if (block.dtype == DType::kBF16) {
    ForwardTyped<bf16>(block, scratch);
  } else {
    ForwardTyped<float>(block, scratch);
  }
}

void Backward(const BackwardHead& head, float* scratch) {
  if (head.q.dtype == DType::kBF16) {
    BackwardTyped<bf16>(head, scratch);
  } else {
    BackwardTyped<float>(head, scratch);
  }
}

template <typename To>
HWY_INLINE void SumHeadsTyped(const float* from, int64_t count, int64_t stride, To* to, int64_t cols, bool add) {
  for_columns(cols, [&](int64_t c, int64_t n) {
    VF sum = load_part(from + c, n);
    for (int64_t i = 1; i < count; ++i) sum = hn::Add(sum, load_part(from + i * stride + c, n));
    if (add) sum = hn::Add(sum, load_part(to + c, n));
    store_part(sum, to + c, n);
  });
}

void SumHeads(const float* from, int64_t count, int64_t stride, const TensorView& to, int64_t row, bool add) {
  if (to.dtype == DType::kBF16) {
    SumHeadsTyped(from, count, stride, to.row<bf16>(row), to.cols, add);
  } else {
    SumHeadsTyped(from, count, stride, to.row<float>(row), to.cols, add);
  }
}

}  // namespace lazytrain::ops::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lazytrain::ops::attention {
HWY_EXPORT(Forward);
HWY_EXPORT(Backward);
HWY_EXPORT(SumHeads);

int64_t forward_floats(int64_t head_dim, int64_t heads) {
  const int64_t ld = align_up(head_dim, 16);
  return kTile * (2 * ld + head_dim) + kTile * kTile + kTile + heads * kTile * (2 * ld + 2);
}

int64_t backward_floats(int64_t head_dim, int64_t max_length) {
  const int64_t ld = align_up(head_dim, 16);
  return kTile * (5 * ld + 2 * head_dim) + 2 * kTile * kTile + 2 * align_up(max_length, 16) + max_length * ld;
}

void forward(const ForwardBlock& block, float* scratch) { HWY_DYNAMIC_DISPATCH(Forward)(block, scratch); }
void backward(const BackwardHead& head, float* scratch) { HWY_DYNAMIC_DISPATCH(Backward)(head, scratch); }
void sum_heads(const float* from, int64_t count, int64_t stride, const TensorView& to, int64_t row, bool add) {
  HWY_DYNAMIC_DISPATCH(SumHeads)(from, count, stride, to, row, add);
}

}  // namespace lazytrain::ops::attention
#endif  // HWY_ONCE
