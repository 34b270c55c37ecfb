#include "ops/gemm.h"

#include <algorithm>

#include "base/arith.h"
#include "ops/gemm_onednn.h"
#include "ops/gemm_simd.h"

namespace lazytrain::ops {
namespace {

// Blocks of one sequential product. A panel of A (M x K) and one of B (N x K) are widened for every block of C, so an
// element is converted for 341 multiply-adds or more: about 3 % of the time. 5 MiB stay near the L2.
constexpr int64_t kBlockM = 1024;
constexpr int64_t kBlockN = 512;
constexpr int64_t kBlockK = 512;
// The bf16 kernels read their operands in place; only the fp32 block of a bf16 C needs memory.
constexpr int64_t kNativeBlockK = 4096;
constexpr int64_t kNativePadBytes = 4 << 20;  // oneDNN 2.6 asks for up to 0.8 MB at these blocks
constexpr int64_t kNativeSmallPadBytes = 512 << 10;
// Up to here a product with a transposed B is bound by reading B, and dot products beat packed kernels.
constexpr int64_t kFewRows = 16;
constexpr int64_t kFewRowsBlockK = 4096;  // long sums: the lanes are added up once a block
constexpr int64_t kGrain = 16;            // edges of tiles and blocks: a cache line of fp32

struct Blocks {
  int64_t m, n, k;
};

Blocks block_limits(bool native) { return {kBlockM, kBlockN, native ? kNativeBlockK : kBlockK}; }

// Hands out 64-byte aligned pieces of the caller's scratch, whose size gemm_scratch_bytes() has counted.
class Scratch {
 public:
  explicit Scratch(std::span<std::byte> bytes) : rest_(bytes) {}
  float* floats(int64_t count) {
    const auto bytes = static_cast<size_t>(align_up(count * 4, 64));
    auto* piece = reinterpret_cast<float*>(rest_.data());
    rest_ = rest_.subspan(bytes);
    return piece;
  }
  std::span<std::byte> rest() const { return rest_; }

 private:
  std::span<std::byte> rest_;
};

// The block of op(X) that starts at (row, col).
TensorView block_of(const TensorView& x, bool transposed, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  return transposed ? x.slice_rows(col, cols).slice_cols(row, rows) : x.slice_rows(row, rows).slice_cols(col, cols);
}

// `block` as fp32: itself, or widened into `panel` in the same orientation.
onednn::Matrix as_f32(const TensorView& block, bool transposed, float* panel) {
  if (block.dtype == DType::kF32) return {block.data, block.stride, transposed};
  const int64_t stride = align_up(block.cols, kGrain);
  simd::widen(block.row<bf16>(0), block.stride, panel, stride, block.rows, block.cols);
  return {panel, stride, transposed};
}

void add_to_row(const TensorView& from, float* to) {
  if (from.dtype == DType::kF32) {
    simd::add_row(from.row<float>(0), to, from.cols);
  } else {
    simd::add_row(from.row<bf16>(0), to, from.cols);
  }
}

// Puts what the sum starts from into the fp32 block `sum`: old values of C and bias. False: nothing, overwrite.
bool start_sum(const Gemm& g, const TensorView& c, const TensorView& bias, const TensorView& sum) {
  const bool in_place = sum.data == c.data;
  if (bias.empty() && (in_place || !g.accumulate)) return g.accumulate;
  for (int64_t r = 0; r < c.rows; ++r) {
    float* to = sum.row<float>(r);
    if (!(in_place && g.accumulate)) std::fill_n(to, c.cols, 0.0f);
    if (g.accumulate && !in_place) add_to_row(c.slice_rows(r, 1), to);
    if (!bias.empty()) add_to_row(bias, to);
  }
  return true;
}

class Sequential {
 public:
  Sequential(std::span<std::byte> scratch, const Gemm& g, GemmStrategy strategy) : g_(g) {
    const bool both_bf16 = g.a.dtype == DType::kBF16 && g.b.dtype == DType::kBF16;
    few_rows_ = g.m() <= kFewRows && g.transpose_b && !g.transpose_a;
    native_ = strategy == GemmStrategy::kNative && both_bf16 && !few_rows_;
    limits_ = block_limits(native_);
    if (few_rows_) limits_.k = kFewRowsBlockK;
    Scratch pieces(scratch);
    const int64_t m = align_up(std::min(g.m(), limits_.m), kGrain);
    const int64_t n = align_up(std::min(g.n(), limits_.n), kGrain);
    const int64_t k = align_up(std::min(g.k(), limits_.k), kGrain);
    if (g.c.dtype != DType::kF32) sum_ = pieces.floats(m * n);
    if (!native_ && g.a.dtype != DType::kF32) panel_a_ = pieces.floats(m * k);
    if (!native_ && !few_rows_ && g.b.dtype != DType::kF32) panel_b_ = pieces.floats(n * k);
    pad_ = pieces.rest();
  }

  void run() {
    const int64_t m_blocks = div_ceil(g_.m(), limits_.m);
    const int64_t n_blocks = div_ceil(g_.n(), limits_.n);
    for (int64_t i = 0; i < m_blocks; ++i) {
      const Part rows = part_of(g_.m(), m_blocks, i, kGrain);
      for (int64_t j = 0; j < n_blocks; ++j) {
        const Part cols = part_of(g_.n(), n_blocks, j, kGrain);
        if (rows.begin < rows.end && cols.begin < cols.end) block(rows, cols);
      }
    }
  }

 private:
  void block(const Part& rows, const Part& cols) {
    const int64_t m = rows.end - rows.begin;
    const int64_t n = cols.end - cols.begin;
    const TensorView c = g_.c.slice_rows(rows.begin, m).slice_cols(cols.begin, n);
    const TensorView bias = g_.bias.empty() ? TensorView{} : g_.bias.slice_cols(cols.begin, n);
    const TensorView sum = sum_ == nullptr ? c : TensorView{sum_, DType::kF32, m, n, align_up(n, kGrain)};
    bool accumulate = start_sum(g_, c, bias, sum);
    const int64_t k_blocks = std::max<int64_t>(1, div_ceil(g_.k(), limits_.k));
    for (int64_t l = 0; l < k_blocks; ++l) {
      const Part depth = part_of(g_.k(), k_blocks, l, kGrain);
      if (l > 0 && depth.begin == depth.end) continue;
      multiply(rows, cols, depth, {sum.data, sum.stride}, accumulate);
      accumulate = true;
    }
    if (sum_ != nullptr) simd::round_to_bf16(sum_, sum.stride, c.row<bf16>(0), c.stride, m, n);
  }

  void multiply(const Part& rows, const Part& cols, const Part& depth, const onednn::Matrix& sum, bool accumulate) {
    const int64_t m = rows.end - rows.begin;
    const int64_t n = cols.end - cols.begin;
    const int64_t k = depth.end - depth.begin;
    const TensorView a = block_of(g_.a, g_.transpose_a, rows.begin, m, depth.begin, k);
    const TensorView b = block_of(g_.b, g_.transpose_b, depth.begin, k, cols.begin, n);
    if (native_) {
      onednn::bf16_gemm(m, n, k, {a.data, a.stride, g_.transpose_a}, {b.data, b.stride, g_.transpose_b}, sum,
                        accumulate, pad_);
      return;
    }
    const onednn::Matrix wide_a = widened_a(a, rows.begin, depth.begin);
    if (!few_rows_) {
      onednn::sgemm(m, n, k, wide_a, as_f32(b, g_.transpose_b, panel_b_), sum, accumulate);
      return;
    }
    const auto* x = static_cast<const float*>(wide_a.data);
    auto* y = static_cast<float*>(sum.data);
    if (b.dtype == DType::kF32) {
      simd::few_rows(m, n, k, x, wide_a.stride, b.row<float>(0), b.stride, y, sum.stride, accumulate);
    } else {
      simd::few_rows(m, n, k, x, wide_a.stride, b.row<bf16>(0), b.stride, y, sum.stride, accumulate);
    }
  }

  // The panel of A serves all blocks of C beside each other when K fits into one.
  onednn::Matrix widened_a(const TensorView& a, int64_t row, int64_t depth) {
    if (row != panel_row_ || depth != panel_depth_) {
      wide_a_ = as_f32(a, g_.transpose_a, panel_a_);
      panel_row_ = row;
      panel_depth_ = depth;
    }
    return wide_a_;
  }

  const Gemm& g_;
  bool native_ = false;
  bool few_rows_ = false;
  Blocks limits_{};
  float* sum_ = nullptr;
  float* panel_a_ = nullptr;
  float* panel_b_ = nullptr;
  std::span<std::byte> pad_;
  onednn::Matrix wide_a_{};
  int64_t panel_row_ = -1;
  int64_t panel_depth_ = -1;
};

int64_t thread_scratch_bytes(const GemmSize& size, GemmStrategy strategy) {
  const bool native = strategy == GemmStrategy::kNative && size.a == DType::kBF16 && size.b == DType::kBF16;
  const Blocks limits = block_limits(native);
  const int64_t m = align_up(std::min(size.m, limits.m), kGrain);
  const int64_t n = align_up(std::min(size.n, limits.n), kGrain);
  const int64_t k = align_up(std::min(size.k, limits.k), kGrain);
  int64_t bytes = size.c == DType::kF32 ? 0 : m * n * 4;
  if (native) {  // the panel of A for few rows fits into it too
    return bytes + std::min(kNativePadBytes, align_up(2 * (m * k + n * k) + 4 * m * n, 64) + kNativeSmallPadBytes);
  }
  const int64_t few_rows_k = align_up(std::min(size.k, kFewRowsBlockK), kGrain);
  if (size.a != DType::kF32) bytes += std::max(m * k, kFewRows * few_rows_k) * 4;
  if (size.b != DType::kF32) bytes += n * k * 4;
  return bytes;
}

int64_t thread_scratch_bytes(const Gemm& g, GemmStrategy strategy) {
  return thread_scratch_bytes({g.m(), g.n(), g.k(), g.a.dtype, g.b.dtype, g.c.dtype}, strategy);
}

void check_scratch(std::span<std::byte> scratch, int64_t wanted, const Gemm& g) {
  if (static_cast<int64_t>(scratch.size()) >= wanted) return;
  throw RunError("matrix product {}x{}x{}: {} bytes of scratch, expected {}. Size it with gemm_scratch_bytes().", g.m(),
                 g.n(), g.k(), scratch.size(), wanted);
}

struct Grid {
  int64_t rows, cols;
};

// The cut of C into at most `threads` tiles that costs the slowest thread least: its multiply-adds and, at about 16
// of them each, the elements of A and B that it has to fetch and convert.
Grid cut(int64_t m, int64_t n, int64_t threads) {
  Grid best{1, 1};
  double best_cost = -1;
  for (int64_t rows = 1; rows <= std::min(threads, div_ceil(m, kGrain)); ++rows) {
    const int64_t cols = std::min(threads / rows, div_ceil(n, kGrain));
    const auto tile_m = static_cast<double>(align_up(div_ceil(m, rows), kGrain));
    const auto tile_n = static_cast<double>(align_up(div_ceil(n, cols), kGrain));
    const double cost = tile_m * tile_n + 16 * (tile_m + tile_n);
    if (best_cost < 0 || cost < best_cost) {
      best = {rows, cols};
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace

GemmStrategy preferred_gemm_strategy() {
  return onednn::cpu_bf16() == onednn::CpuBf16::kFast ? GemmStrategy::kNative : GemmStrategy::kWiden;
}

bool native_bf16_supported() { return onednn::cpu_bf16() != onednn::CpuBf16::kNone; }

int64_t gemm_scratch_bytes(const GemmSize& size, int threads, GemmStrategy strategy) {
  return thread_scratch_bytes(size, strategy) * threads;
}

void gemm_on_this_thread(std::span<std::byte> scratch, const Gemm& g, GemmStrategy strategy) {
  check_scratch(scratch, thread_scratch_bytes(g, strategy), g);
  Sequential(scratch, g, strategy).run();
}

void gemm(ThreadPool& pool, std::span<std::byte> scratch, const Gemm& g, GemmStrategy strategy) {
  if (g.m() == 0 || g.n() == 0) return;
  const Grid grid = cut(g.m(), g.n(), pool.threads());
  const int64_t share_bytes = thread_scratch_bytes(g, strategy);
  check_scratch(scratch, share_bytes * grid.rows * grid.cols, g);
  const auto share = static_cast<size_t>(share_bytes);
  pool.run(grid.rows * grid.cols, [&](int64_t index) {
    const Part rows = part_of(g.m(), grid.rows, index / grid.cols, kGrain);
    const Part cols = part_of(g.n(), grid.cols, index % grid.cols, kGrain);
    const int64_t m = rows.end - rows.begin;
    const int64_t n = cols.end - cols.begin;
    if (m <= 0 || n <= 0) return;
    Gemm tile = g;
    tile.a = block_of(g.a, g.transpose_a, rows.begin, m, 0, g.k());
    tile.b = block_of(g.b, g.transpose_b, 0, g.k(), cols.begin, n);
    tile.c = g.c.slice_rows(rows.begin, m).slice_cols(cols.begin, n);
    if (!g.bias.empty()) tile.bias = g.bias.slice_cols(cols.begin, n);
    gemm_on_this_thread(scratch.subspan(static_cast<size_t>(index) * share, share), tile, strategy);
  });
}

}  // namespace lazytrain::ops
