// Products of small fp32 tiles that lie in L1/L2: register blocks of 6 rows by 4 vectors (2 where there are 16
// registers). Include after hwy/highway.h.
#if defined(LAZYTRAIN_OPS_TILE_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAZYTRAIN_OPS_TILE_GEMM_INL_H_
#undef LAZYTRAIN_OPS_TILE_GEMM_INL_H_
#else
#define LAZYTRAIN_OPS_TILE_GEMM_INL_H_
#endif

#include <algorithm>

#include "ops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lazytrain::ops::vec::HWY_NAMESPACE {

// Which part of a product is needed. In a tile on the causal diagonal the pairs above it are masked.
enum class Need {
  kAll,
  kLowerC,  // c[i, j] for j <= i only; what lies right of that may be left as it is
  kLowerA,  // a[i, p] is zero for p > i
  kUpperA,  // a[i, p] is zero for p < i
};

// c[i, j] (+)= Σ_p a(i, p) b[p, j] with a(i, p) = a[p·lda + i] where kTransposed, else a[i·lda + p].
// `cols`, ldb and ldc are multiples of 16; b and c are 64-byte aligned.
struct TileGemm {
  int64_t rows, cols, depth;
  const float* a;
  int64_t lda;
  const float* b;
  int64_t ldb;
  float* c;
  int64_t ldc;
};

inline constexpr int kBlockRows = 6;
inline constexpr int kBlockVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

template <int kRows, int kVectors, bool kTransposed, bool kAdd>
HWY_INLINE void RegisterBlock(const TileGemm& g, int64_t i, int64_t j, int64_t begin, int64_t end) {
  const DF d;
  const int64_t step = lanes();
  VF sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = kAdd ? hn::Load(d, g.c + (i + r) * g.ldc + j + v * step) : hn::Zero(d);
    }
  }
  const float* a = kTransposed ? g.a + begin * g.lda + i : g.a + i * g.lda + begin;
  const float* b = g.b + begin * g.ldb + j;
  for (int64_t p = begin; p < end; ++p, a += kTransposed ? g.lda : 1, b += g.ldb) {
    VF right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = hn::Load(d, b + v * step);
    for (int r = 0; r < kRows; ++r) {
      const VF left = hn::Set(d, kTransposed ? a[r] : a[r * g.lda]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], d, g.c + (i + r) * g.ldc + j + v * step);
  }
}

template <int kVectors, Need kNeed, bool kTransposed, bool kAdd>
HWY_INLINE void RowBlock(const TileGemm& g, int64_t i, int64_t rows, int64_t j) {
  const int64_t begin = kNeed == Need::kUpperA ? std::min(i, g.depth) : 0;
  const int64_t end = kNeed == Need::kLowerA ? std::min(i + rows, g.depth) : g.depth;
  switch (rows) {
    case 6:
      return RegisterBlock<6, kVectors, kTransposed, kAdd>(g, i, j, begin, end);
    case 5:
      return RegisterBlock<5, kVectors, kTransposed, kAdd>(g, i, j, begin, end);
    case 4:
      return RegisterBlock<4, kVectors, kTransposed, kAdd>(g, i, j, begin, end);
    case 3:
      return RegisterBlock<3, kVectors, kTransposed, kAdd>(g, i, j, begin, end);
    case 2:
      return RegisterBlock<2, kVectors, kTransposed, kAdd>(g, i, j, begin, end);
    default:
      return RegisterBlock<1, kVectors, kTransposed, kAdd>(g, i, j, begin, end);
  }
}

template <Need kNeed, bool kTransposed, bool kAdd>
void Multiply(const TileGemm& g) {
  const int64_t step = lanes();
  const int64_t vectors = div_ceil(g.cols, step);
  const int64_t row_blocks = div_ceil(g.rows, kBlockRows);
  for (int64_t first = 0; first < vectors; first += kBlockVectors) {
    for (int64_t block = 0; block < row_blocks; ++block) {
      const Part part = part_of(g.rows, row_blocks, block);  // blocks of nearly one height, not a last one of one row
      const int64_t rows = part.end - part.begin;
      int64_t left = vectors - first;
      if (kNeed == Need::kLowerC) left = std::min(left, (part.end - 1) / step + 1 - first);
      if (left <= 0) continue;
      const int64_t j = first * step;
      if (left >= kBlockVectors) {
        RowBlock<kBlockVectors, kNeed, kTransposed, kAdd>(g, part.begin, rows, j);
      } else if (left == 3) {
        RowBlock<(kBlockVectors > 3 ? 3 : 1), kNeed, kTransposed, kAdd>(g, part.begin, rows, j);
      } else if (left == 2) {
        RowBlock<(kBlockVectors > 2 ? 2 : 1), kNeed, kTransposed, kAdd>(g, part.begin, rows, j);
      } else {
        RowBlock<1, kNeed, kTransposed, kAdd>(g, part.begin, rows, j);
      }
    }
  }
}

// `diagonal` chooses between kNeed and the whole product.
template <Need kNeed, bool kTransposed, bool kAdd>
HWY_INLINE void multiply(bool diagonal, const TileGemm& g) {
  if (diagonal) {
    Multiply<kNeed, kTransposed, kAdd>(g);
  } else {
    Multiply<Need::kAll, kTransposed, kAdd>(g);
  }
}

}  // namespace lazytrain::ops::vec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LAZYTRAIN_OPS_TILE_GEMM_INL_H_
