#include "ops/lm_head_loss.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/arith.h"
#include "ops/gemm_simd.h"
#include "ops/lm_head_simd.h"

namespace lazytrain::ops {
namespace {

constexpr int64_t kLogitsBytes = int64_t{192} << 20;
constexpr int64_t kMaxChunk = 512;  // longer chunks gain little once W is read and converted twice per 512 tokens
constexpr int64_t kTile = 1024;     // vocabulary rows a tile: 512 logits rows of it are 2 MB, about an L2
constexpr int64_t kGrain = 16;

struct Shape {
  int64_t tokens, hidden, vocabulary;
  DType activation;
  GemmStrategy strategy;
  int threads;

  bool native() const { return activation == DType::kBF16 && strategy == GemmStrategy::kNative; }
  DType operand() const { return native() ? DType::kBF16 : DType::kF32; }  // of gathered n and of dlogits
  int64_t chunk() const {
    const int64_t fitting = kLogitsBytes / (4 * align_up(vocabulary, kGrain));
    return std::min(std::clamp(fitting, kGrain, kMaxChunk), std::max<int64_t>(tokens, 1));
  }
  int64_t parts() const { return std::min<int64_t>(threads, div_ceil(vocabulary, kGrain)); }
};

// Where everything stands in the scratch. Built on a null base it only counts bytes.
struct Layout {
  explicit Layout(const Shape& s, std::byte* base = nullptr) : base_(base) {
    const int64_t chunk = s.chunk();
    rows = take<int32_t>(s.tokens);
    stats = take<simd::RowStats>(chunk * s.parts());
    target_logit = take<float>(chunk);
    n = take<std::byte>(chunk * s.hidden * size_of(s.operand()));
    logits = take<float>(chunk * align_up(s.vocabulary, kGrain));
    dn = take<float>(chunk * s.hidden * s.parts());
    if (s.native()) dlogits = take<bf16>(chunk * kTile * s.parts());
    gemm_bytes = align_up(
        std::max({gemm_scratch_bytes({chunk, kTile, s.hidden, s.operand(), s.activation, DType::kF32}, 1, s.strategy),
                  gemm_scratch_bytes({chunk, s.hidden, kTile, s.operand(), s.activation, DType::kF32}, 1, s.strategy),
                  gemm_scratch_bytes({kTile, s.hidden, chunk, s.operand(), s.operand(), DType::kF32}, 1, s.strategy)}),
        64);
    gemm = take<std::byte>(gemm_bytes * s.parts());
  }

  int32_t* rows;            // [tokens] the counted tokens, in order
  simd::RowStats* stats;    // [parts, chunk]
  float* target_logit;      // [chunk]
  std::byte* n;             // [chunk, hidden]
  float* logits;            // tile after tile, each [chunk, tile width]
  float* dn;                // [parts, chunk, hidden]
  bf16* dlogits = nullptr;  // [parts] of [chunk, kTile]
  std::byte* gemm;
  int64_t gemm_bytes;
  int64_t bytes = 0;

 private:
  template <typename T>
  T* take(int64_t count) {
    T* at = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + bytes);
    bytes += align_up(count * int64_t{sizeof(T)}, 64);
    return at;
  }
  std::byte* base_;
};

// One call of the op: loss, and gradients where their views are not empty.
class Pass {
 public:
  Pass(const CpuContext& context, const Shape& shape, const TensorView& n, const TensorView& weight)
      : context_(context), pool_(*context.pool), shape_(shape), at_(shape, context.scratch.data()), n_(n), w_(weight) {
    if (at_.bytes > static_cast<int64_t>(context.scratch.size())) {
      throw RunError("LM head: {} bytes of scratch, expected {}. Size it with cpu_scratch_bytes().",
                     context.scratch.size(), at_.bytes);
    }
  }

  void run(const TensorView& dn, bool add_dn, const TensorView& dw, bool add_dw) {
    const int64_t counted = gather_rows();
    *context_.loss = {0, counted};
    if (!dn.empty() && !add_dn) zero_uncounted(dn);
    if (counted == 0 && !dw.empty() && !add_dw) zero(dw);
    const int64_t chunks = div_ceil(counted, shape_.chunk());
    for (int64_t i = 0; i < chunks; ++i) {
      const Part part = part_of(counted, chunks, i);
      first_ = part.begin;
      count_ = part.end - part.begin;
      gather_n();
      pool_.run(shape_.parts(), [&](int64_t p) { logits_of(p); });
      add_loss();
      if (dn.empty() && dw.empty()) continue;
      pool_.run(shape_.parts(), [&](int64_t p) { gradients_of(p, !dn.empty(), dw, add_dw || i > 0); });
      if (!dn.empty()) scatter_dn(dn, add_dn);
    }
  }

 private:
  struct Tile {
    Part rows;          // of the vocabulary
    TensorView logits;  // [count, width]
  };

  int64_t gather_rows() {
    int64_t counted = 0;
    for (int64_t t = 0; t < n_.rows; ++t) {
      if (target_of(t) >= 0) at_.rows[counted++] = static_cast<int32_t>(t);
    }
    return counted;
  }
  int32_t target_of(int64_t token) const { return context_.tokens->targets[static_cast<size_t>(token)]; }
  int32_t target_of_row(int64_t row) const { return target_of(at_.rows[first_ + row]); }

  void zero_uncounted(const TensorView& dn) {
    const auto bytes = static_cast<size_t>(dn.cols * size_of(dn.dtype));
    for (int64_t t = 0; t < dn.rows; ++t) {
      if (target_of(t) < 0) std::memset(dn.slice_rows(t, 1).data, 0, bytes);
    }
  }
  void zero(const TensorView& dw) {
    pool_.parallel_for(dw.rows, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) std::fill_n(dw.row<float>(r), dw.cols, 0.0f);
    });
  }

  TensorView gathered_n() const { return dense(at_.n, shape_.operand(), count_, shape_.hidden); }
  void gather_n() {
    const TensorView to = gathered_n();
    for (int64_t r = 0; r < count_; ++r) {
      const int64_t token = at_.rows[first_ + r];
      if (to.dtype == n_.dtype) {
        std::memcpy(to.slice_rows(r, 1).data, n_.slice_rows(token, 1).data,
                    static_cast<size_t>(to.slice_rows(r, 1).bytes()));
      } else {
        simd::widen(n_.row<bf16>(token), n_.stride, to.row<float>(r), to.stride, 1, to.cols);
      }
    }
  }

  // The tiles of part `p`, each dense: the logits of the tile that starts at v stand count * v floats into the memory.
  template <typename Body>
  void for_tiles(int64_t p, const Body& body) const {
    const Part part = part_of(shape_.vocabulary, shape_.parts(), p, kGrain);
    const int64_t tiles = div_ceil(part.end - part.begin, kTile);
    for (int64_t i = 0; i < tiles; ++i) {
      Part rows = part_of(part.end - part.begin, tiles, i, kGrain);
      rows = {rows.begin + part.begin, rows.end + part.begin};
      const int64_t width = rows.end - rows.begin;
      if (width <= 0) continue;
      body(Tile{rows, {at_.logits + count_ * rows.begin, DType::kF32, count_, width, align_up(width, kGrain)}}, i == 0);
    }
  }
  std::span<std::byte> gemm_scratch(int64_t p) const {
    return {at_.gemm + p * at_.gemm_bytes, static_cast<size_t>(at_.gemm_bytes)};
  }
  TensorView w_rows(const Part& rows) const { return w_.slice_rows(rows.begin, rows.end - rows.begin); }

  void logits_of(int64_t p) {
    simd::RowStats* stats = at_.stats + p * count_;
    std::fill_n(stats, count_, simd::RowStats{-std::numeric_limits<float>::infinity(), 0});
    for_tiles(p, [&](const Tile& tile, bool) {
      const Gemm product{.a = gathered_n(), .b = w_rows(tile.rows), .transpose_b = true, .c = tile.logits};
      gemm_on_this_thread(gemm_scratch(p), product, shape_.strategy);
      for (int64_t r = 0; r < count_; ++r) {
        const float* row = tile.logits.row<float>(r);
        simd::add_to_stats(row, tile.logits.cols, stats[r]);
        const int64_t target = target_of_row(r);
        if (target >= tile.rows.begin && target < tile.rows.end) at_.target_logit[r] = row[target - tile.rows.begin];
      }
    });
  }

  // Merges the parts' statistics into those of part 0, in their order, and adds up the loss.
  void add_loss() {
    for (int64_t r = 0; r < count_; ++r) {
      simd::RowStats& total = at_.stats[r];
      for (int64_t p = 1; p < shape_.parts(); ++p) total = simd::merge(total, at_.stats[p * count_ + r]);
      context_.loss->nll += std::log(total.sum) + (static_cast<double>(total.max) - at_.target_logit[r]);
    }
  }

  // logits -> dlogits, in place; the returned view is rounded to bf16 where the kernels are.
  TensorView dlogits_of(int64_t p, const Tile& tile) const {
    const double scale = context_.tokens->loss_scale;
    for (int64_t r = 0; r < count_; ++r) {
      float* row = tile.logits.row<float>(r);
      const simd::RowStats& stats = at_.stats[r];
      simd::scaled_exp(row, tile.logits.cols, stats.max, static_cast<float>(scale / stats.sum));
      const int64_t target = target_of_row(r);
      if (target >= tile.rows.begin && target < tile.rows.end)
        row[target - tile.rows.begin] -= static_cast<float>(scale);
    }
    if (!shape_.native()) return tile.logits;
    const TensorView rounded{at_.dlogits + p * count_ * kTile, DType::kBF16, count_, tile.logits.cols,
                             tile.logits.stride};
    simd::round_to_bf16(tile.logits.row<float>(0), tile.logits.stride, rounded.row<bf16>(0), rounded.stride, count_,
                        rounded.cols);
    return rounded;
  }

  TensorView partial_dn(int64_t p) const {
    return dense(at_.dn + p * count_ * shape_.hidden, DType::kF32, count_, shape_.hidden);
  }
  void gradients_of(int64_t p, bool with_dn, const TensorView& dw, bool add_dw) {
    for_tiles(p, [&](const Tile& tile, bool first) {
      const TensorView dlogits = dlogits_of(p, tile);
      if (with_dn) {
        const Gemm product{.a = dlogits, .b = w_rows(tile.rows), .c = partial_dn(p), .accumulate = !first};
        gemm_on_this_thread(gemm_scratch(p), product, shape_.strategy);
      }
      if (!dw.empty()) {
        const Gemm product{.a = dlogits,
                           .transpose_a = true,
                           .b = gathered_n(),
                           .c = dw.slice_rows(tile.rows.begin, tile.rows.end - tile.rows.begin),
                           .accumulate = add_dw};
        gemm_on_this_thread(gemm_scratch(p), product, shape_.strategy);
      }
    });
  }

  void scatter_dn(const TensorView& dn, bool add) {
    pool_.parallel_for(count_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t token = at_.rows[first_ + r];
        float* sum = partial_dn(0).row<float>(r);
        for (int64_t p = 1; p < shape_.parts(); ++p) simd::add_row(partial_dn(p).row<float>(r), sum, dn.cols);
        if (dn.dtype == DType::kF32) {
          if (add) simd::add_row(dn.row<float>(token), sum, dn.cols);
          std::copy_n(sum, dn.cols, dn.row<float>(token));
        } else {
          if (add) simd::add_row(dn.row<bf16>(token), sum, dn.cols);
          simd::round_to_bf16(sum, dn.cols, dn.row<bf16>(token), dn.stride, 1, dn.cols);
        }
      }
    });
  }

  const CpuContext& context_;
  ThreadPool& pool_;
  Shape shape_;
  Layout at_;
  TensorView n_;
  TensorView w_;
  int64_t first_ = 0;  // of the chunk, among the counted tokens
  int64_t count_ = 0;
};

}  // namespace

LmHeadLoss::LmHeadLoss(int64_t hidden, int64_t vocabulary, GemmStrategy strategy)
    : hidden_(hidden), vocabulary_(vocabulary), strategy_(strategy) {}

std::vector<graph::ParameterSpec> LmHeadLoss::parameters() const {
  return {{.name = "weight", .shape = {vocabulary_, hidden_}, .init = graph::Init::kNormal}};
}

graph::Work LmHeadLoss::forward_work(const graph::Dims& dims) const {
  const auto t = static_cast<double>(dims.tokens), h = static_cast<double>(hidden_),
             v = static_cast<double>(vocabulary_);
  const auto element = static_cast<double>(dims.activation_bytes);
  const Shape shape{dims.tokens, hidden_, vocabulary_, DType::kF32, strategy_, 1};
  const auto chunks = static_cast<double>(div_ceil(dims.tokens, shape.chunk()));
  return {.flops = 2 * t * h * v, .bytes = element * (chunks * h * v + t * h) + 4 * t * v};
}

graph::Work LmHeadLoss::backward_work(const graph::Dims& dims) const {
  const auto t = static_cast<double>(dims.tokens), h = static_cast<double>(hidden_),
             v = static_cast<double>(vocabulary_);
  const auto element = static_cast<double>(dims.activation_bytes);
  const Shape shape{dims.tokens, hidden_, vocabulary_, DType::kF32, strategy_, 1};
  const auto chunks = static_cast<double>(div_ceil(dims.tokens, shape.chunk()));
  // A chunk reads W twice, reads and writes the fp32 dW, and writes the logits once and reads them once.
  return {.flops = 6 * t * h * v, .bytes = chunks * h * v * (2 * element + 8) + 2 * element * t * h + 8 * t * v};
}

int64_t LmHeadLoss::cpu_scratch_bytes(const graph::Dims& dims, int threads) const {
  const DType activation = dims.activation_bytes == 2 ? DType::kBF16 : DType::kF32;
  return Layout({dims.tokens, hidden_, vocabulary_, activation, strategy_, threads}).bytes;
}

void LmHeadLoss::forward(const CpuContext& context, const ForwardArgs& args) const {
  const Shape shape{args.in[0].rows, hidden_, vocabulary_, context.activation, strategy_, context.pool->threads()};
  Pass(context, shape, args.in[0], args.param[0]).run({}, false, {}, false);
}

void LmHeadLoss::backward(const CpuContext& context, const BackwardArgs& args) const {
  const Shape shape{args.in[0].rows, hidden_, vocabulary_, context.activation, strategy_, context.pool->threads()};
  Pass(context, shape, args.in[0], args.param[0])
      .run(args.in_grad[0], args.add_in_grad[0], args.param_grad[0], args.add_param_grad[0]);
}

int64_t lm_head_logits_scratch_bytes(int64_t tokens, int64_t hidden, int64_t vocabulary, DType activation, int threads,
                                     GemmStrategy strategy) {
  return gemm_scratch_bytes({tokens, vocabulary, hidden, activation, activation, DType::kF32}, threads, strategy);
}

void lm_head_logits(const CpuContext& context, const TensorView& n, const TensorView& weight, const TensorView& logits,
                    GemmStrategy strategy) {
  const Gemm product{.a = n, .b = weight, .transpose_b = true, .c = logits};
  gemm(*context.pool, context.scratch, product, strategy);
}

}  // namespace lazytrain::ops
