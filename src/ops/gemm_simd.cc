#include "ops/gemm_simd.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gemm_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lazytrain::ops::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DU32 = hn::RebindToUnsigned<DF>;
using DU16 = hn::Rebind<uint16_t, DF>;

HWY_INLINE hn::Vec<DF> load(DF d, const float* p) { return hn::LoadU(d, p); }
HWY_INLINE hn::Vec<DF> load(DF d, const bf16* p) {
  const auto bits = hn::LoadU(DU16(), reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(DU32(), bits)));
}
HWY_INLINE float load_one(const float* p) { return *p; }
HWY_INLINE float load_one(const bf16* p) { return to_float(*p); }

// Same rounding as to_bf16() (base/dtype.h).
HWY_INLINE void store_bf16(DF d, hn::Vec<DF> v, bf16* p) {
  const DU32 du;
  const auto bits = hn::BitCast(du, v);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto lsb = hn::And(upper, hn::Set(du, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(lsb, hn::Set(du, 0x7fff))));
  const auto quiet = hn::Or(upper, hn::Set(du, 0x40));
  const auto nan = hn::RebindMask(du, hn::IsNaN(v));
  (void)d;
  hn::StoreU(hn::TruncateTo(DU16(), hn::IfThenElse(nan, quiet, rounded)), DU16(), reinterpret_cast<uint16_t*>(p));
}

void Widen(const bf16* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows, int64_t cols) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < rows; ++r, from += from_stride, to += to_stride) {
    int64_t c = 0;
    for (; c + lanes <= cols; c += lanes) hn::StoreU(load(d, from + c), d, to + c);
    for (; c < cols; ++c) to[c] = to_float(from[c]);
  }
}

void RoundToBf16(const float* from, int64_t from_stride, bf16* to, int64_t to_stride, int64_t rows, int64_t cols) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < rows; ++r, from += from_stride, to += to_stride) {
    int64_t c = 0;
    for (; c + lanes <= cols; c += lanes) store_bf16(d, load(d, from + c), to + c);
    for (; c < cols; ++c) to[c] = to_bf16(from[c]);
  }
}

// kM x kN dot products over k at a time: (kM + kN) loads for kM * kN multiply-adds, accumulators stay in registers.
// kPrefetch asks for the kN rows of B behind these (a hint: it may point past the end).
template <int kM, int kN, bool kPrefetch, typename B>
HWY_INLINE void DotTile(int64_t k, const float* a, int64_t a_stride, const B* b, int64_t b_stride, float* c,
                        int64_t c_stride, bool accumulate) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<DF> sum[kM][kN];
  for (int i = 0; i < kM; ++i) {
    for (int j = 0; j < kN; ++j) sum[i][j] = hn::Zero(d);
  }
  int64_t p = 0;
  for (; p + lanes <= k; p += lanes) {
    hn::Vec<DF> row[kM];
    for (int i = 0; i < kM; ++i) row[i] = load(d, a + i * a_stride + p);
    for (int j = 0; j < kN; ++j) {
      const B* at = b + j * b_stride + p;
      if (kPrefetch) __builtin_prefetch(reinterpret_cast<const char*>(at) + kN * b_stride * int64_t{sizeof(B)});
      const auto w = load(d, at);
      for (int i = 0; i < kM; ++i) sum[i][j] = hn::MulAdd(row[i], w, sum[i][j]);
    }
  }
  for (int i = 0; i < kM; ++i) {
    for (int j = 0; j < kN; ++j) {
      float total = hn::GetLane(hn::SumOfLanes(d, sum[i][j]));
      for (int64_t q = p; q < k; ++q) total += a[i * a_stride + q] * load_one(b + j * b_stride + q);
      float& out = c[i * c_stride + j];
      out = accumulate ? out + total : total;
    }
  }
}

template <int kN, typename B>
HWY_INLINE void DotColumns(int64_t m, int64_t k, const float* a, int64_t a_stride, const B* b, int64_t b_stride,
                           float* c, int64_t c_stride, bool accumulate) {
  int64_t i = 0;
  if (m >= 4) {
    DotTile<4, kN, true>(k, a, a_stride, b, b_stride, c, c_stride, accumulate);
    i = 4;
  }
  for (; i + 4 <= m; i += 4) {
    DotTile<4, kN, false>(k, a + i * a_stride, a_stride, b, b_stride, c + i * c_stride, c_stride, accumulate);
  }
  if (i + 2 <= m) {
    DotTile<2, kN, false>(k, a + i * a_stride, a_stride, b, b_stride, c + i * c_stride, c_stride, accumulate);
    i += 2;
  }
  if (i < m) DotTile<1, kN, false>(k, a + i * a_stride, a_stride, b, b_stride, c + i * c_stride, c_stride, accumulate);
}

template <typename B>
void FewRows(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_stride, const B* b, int64_t b_stride, float* c,
             int64_t c_stride, bool accumulate) {
  constexpr int kN = HWY_TARGET <= HWY_AVX3 ? 4 : 2;  // 16 accumulators where there are 32 registers, else 8
  int64_t j = 0;
  for (; j + kN <= n; j += kN) {
    DotColumns<kN>(m, k, a, a_stride, b + j * b_stride, b_stride, c + j, c_stride, accumulate);
  }
  for (; j < n; ++j) DotColumns<1>(m, k, a, a_stride, b + j * b_stride, b_stride, c + j, c_stride, accumulate);
}

void FewRowsF32(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                float* c, int64_t c_stride, bool accumulate) {
  FewRows(m, n, k, a, a_stride, b, b_stride, c, c_stride, accumulate);
}
void FewRowsBf16(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_stride, const bf16* b, int64_t b_stride,
                 float* c, int64_t c_stride, bool accumulate) {
  FewRows(m, n, k, a, a_stride, b, b_stride, c, c_stride, accumulate);
}

template <typename X>
HWY_INLINE void ColumnSums(const X* x, int64_t stride, int64_t rows, int64_t cols, float* sum, bool accumulate) {
  constexpr int64_t kRun = 64;
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= cols; c += lanes) {
    auto total = accumulate ? hn::LoadU(d, sum + c) : hn::Zero(d);
    for (int64_t r0 = 0; r0 < rows; r0 += kRun) {
      auto run = hn::Zero(d);
      for (int64_t r = r0; r < std::min(rows, r0 + kRun); ++r) run = hn::Add(run, load(d, x + r * stride + c));
      total = hn::Add(total, run);
    }
    hn::StoreU(total, d, sum + c);
  }
  for (; c < cols; ++c) {
    float total = accumulate ? sum[c] : 0.0f;
    for (int64_t r0 = 0; r0 < rows; r0 += kRun) {
      float run = 0;
      for (int64_t r = r0; r < std::min(rows, r0 + kRun); ++r) run += load_one(x + r * stride + c);
      total += run;
    }
    sum[c] = total;
  }
}

void ColumnSumsF32(const float* x, int64_t stride, int64_t rows, int64_t cols, float* sum, bool accumulate) {
  ColumnSums(x, stride, rows, cols, sum, accumulate);
}
void ColumnSumsBf16(const bf16* x, int64_t stride, int64_t rows, int64_t cols, float* sum, bool accumulate) {
  ColumnSums(x, stride, rows, cols, sum, accumulate);
}

template <typename X>
HWY_INLINE void AddRow(const X* from, float* to, int64_t cols) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= cols; c += lanes) hn::StoreU(hn::Add(hn::LoadU(d, to + c), load(d, from + c)), d, to + c);
  for (; c < cols; ++c) to[c] += load_one(from + c);
}
void AddRowF32(const float* from, float* to, int64_t cols) { AddRow(from, to, cols); }
void AddRowBf16(const bf16* from, float* to, int64_t cols) { AddRow(from, to, cols); }

}  // namespace lazytrain::ops::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lazytrain::ops::simd {

HWY_EXPORT(Widen);
HWY_EXPORT(RoundToBf16);
HWY_EXPORT(FewRowsF32);
HWY_EXPORT(FewRowsBf16);
HWY_EXPORT(ColumnSumsF32);
HWY_EXPORT(ColumnSumsBf16);
HWY_EXPORT(AddRowF32);
HWY_EXPORT(AddRowBf16);

void widen(const bf16* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows, int64_t cols) {
  HWY_DYNAMIC_DISPATCH(Widen)(from, from_stride, to, to_stride, rows, cols);
}
void round_to_bf16(const float* from, int64_t from_stride, bf16* to, int64_t to_stride, int64_t rows, int64_t cols) {
  HWY_DYNAMIC_DISPATCH(RoundToBf16)(from, from_stride, to, to_stride, rows, cols);
}
void few_rows(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_stride, const float* b, int64_t b_stride,
              float* c, int64_t c_stride, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(FewRowsF32)(m, n, k, a, a_stride, b, b_stride, c, c_stride, accumulate);
}
void few_rows(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_stride, const bf16* b, int64_t b_stride,
              float* c, int64_t c_stride, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(FewRowsBf16)(m, n, k, a, a_stride, b, b_stride, c, c_stride, accumulate);
}
void column_sums(const float* x, int64_t stride, int64_t rows, int64_t cols, float* sum, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(ColumnSumsF32)(x, stride, rows, cols, sum, accumulate);
}
void column_sums(const bf16* x, int64_t stride, int64_t rows, int64_t cols, float* sum, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(ColumnSumsBf16)(x, stride, rows, cols, sum, accumulate);
}
void add_row(const float* from, float* to, int64_t cols) { HWY_DYNAMIC_DISPATCH(AddRowF32)(from, to, cols); }
void add_row(const bf16* from, float* to, int64_t cols) { HWY_DYNAMIC_DISPATCH(AddRowBf16)(from, to, cols); }

}  // namespace lazytrain::ops::simd
#endif  // HWY_ONCE
