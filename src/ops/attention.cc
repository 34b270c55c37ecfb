#include "ops/attention.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <numeric>
#include <tuple>

#include "base/arith.h"
#include "ops/attention_kernel.h"

namespace lazytrain::ops {
namespace {

using attention::kHeadBlock;
using attention::kTile;

constexpr int64_t kAlignFloats = 16;

int64_t aligned(int64_t floats) { return align_up(floats, kAlignFloats); }

// A document, or a tile of its queries.
struct Piece {
  int32_t begin;  // of the document
  int32_t length;
  int32_t tile;
};

// What the pieces of so many tokens take of the scratch, at its beginning: a piece has one token at least.
int64_t piece_floats(int64_t tokens) {
  static_assert(sizeof(Piece) == 3 * sizeof(float));
  return aligned(3 * tokens);
}

// Puts the documents that are not empty, cut into tiles of so many queries, into `memory`: those of the longest first,
// the last tile of each first, so that the big items start early and the small ones fill the end.
std::span<const Piece> pieces_of(const Tokens& tokens, int64_t tile, float* memory) {
  auto* pieces = reinterpret_cast<Piece*>(memory);
  size_t count = 0;
  for (size_t i = 0; i + 1 < tokens.doc_starts.size(); ++i) {
    const int32_t begin = tokens.doc_starts[i], length = tokens.doc_starts[i + 1] - begin;
    for (int64_t t = div_ceil(length, tile) - 1; t >= 0; --t)
      pieces[count++] = {begin, length, static_cast<int32_t>(t)};
  }
  std::sort(pieces, pieces + count, [](const Piece& a, const Piece& b) {
    return std::tuple(b.length, a.begin, b.tile) < std::tuple(a.length, b.begin, a.tile);
  });
  return {pieces, count};
}

// Runs body(item, scratch) for items [0, count) on the pool, in that order, whoever is free next. Items are
// independent, so the results do not depend on who took which. `slot` floats of scratch belong to each runner.
void run_items(const CpuContext& context, int64_t count, int64_t slot, float* scratch,
               FunctionRef<void(int64_t, float*)> body) {
  std::atomic<int64_t> next{0};
  context.pool->run(std::min<int64_t>(count, context.pool->threads()), [&](int64_t runner) {
    for (int64_t item = next++; item < count; item = next++) body(item, scratch + runner * slot);
  });
}

attention::HeadRows head_rows(const TensorView& view, int64_t row, int64_t column, int64_t head_stride) {
  return {view.slice_rows(row, 1).slice_cols(column, head_stride).data, view.stride, head_stride};
}

}  // namespace

Attention::Attention(int64_t query_heads, int64_t kv_heads, int64_t head_dim, float scale)
    : shape_{query_heads, kv_heads, head_dim, scale} {
  div_exact(query_heads, kv_heads, "attention: query heads a key/value head");
}

std::vector<graph::ValueSpec> Attention::outputs() const {
  return {{.name = "out", .width = shape_.query_heads * shape_.head_dim},
          {.name = "lse", .width = shape_.query_heads, .element = graph::Element::kF32}};
}

graph::Work Attention::forward_work(const graph::Dims& dims) const {
  const auto t = static_cast<double>(dims.tokens), context = static_cast<double>(dims.context);
  const auto q = static_cast<double>(shape_.query_heads * shape_.head_dim);
  const auto kv = static_cast<double>(shape_.kv_heads * shape_.head_dim);
  // Two products of 2 · context · q a token, half of the pairs masked.
  return {.flops = 2 * t * context * q,
          .bytes = static_cast<double>(dims.activation_bytes) * t * (2 * q + 2 * kv) +
                   4 * t * static_cast<double>(shape_.query_heads)};
}

graph::Work Attention::backward_work(const graph::Dims& dims) const {
  const auto t = static_cast<double>(dims.tokens);
  const auto q = static_cast<double>(shape_.query_heads * shape_.head_dim);
  const auto kv = static_cast<double>(shape_.kv_heads * shape_.head_dim);
  // Five products where forward has two: S again, dP, dv, dk, dq.
  return {.flops = 2.5 * forward_work(dims).flops,
          .bytes = static_cast<double>(dims.activation_bytes) * t * (4 * q + 4 * kv) +
                   4 * t * static_cast<double>(shape_.query_heads)};
}

int64_t Attention::cpu_scratch_bytes(const graph::Dims& dims, int threads) const {
  const int64_t d = shape_.head_dim;
  const int64_t forward_slot = aligned(attention::forward_floats(d, std::min(shape_.group(), kHeadBlock)));
  const int64_t backward_slot = aligned(attention::backward_floats(d, dims.tokens));
  const int64_t shared = shape_.group() == 1 ? 0 : 2 * aligned(dims.tokens * shape_.query_heads * d);
  return size_of(DType::kF32) *
         (piece_floats(dims.tokens) + std::max(threads * forward_slot, shared + threads * backward_slot));
}

void Attention::forward(const CpuContext& context, const ForwardArgs& args) const {
  const int64_t d = shape_.head_dim, group = shape_.group();
  const int64_t head_blocks = div_ceil(group, kHeadBlock);
  auto* memory = reinterpret_cast<float*>(context.scratch.data());
  const std::span<const Piece> tiles = pieces_of(*context.tokens, kTile, memory);
  float* scratch = memory + piece_floats(args.in[0].rows);
  const int64_t per_tile = shape_.kv_heads * head_blocks;
  const int64_t slot = aligned(attention::forward_floats(d, std::min(group, kHeadBlock)));
  run_items(context, static_cast<int64_t>(tiles.size()) * per_tile, slot, scratch, [&](int64_t item, float* own) {
    const Piece& at = tiles[static_cast<size_t>(item / per_tile)];
    const int64_t kv_head = item % per_tile / head_blocks;
    const Part heads = part_of(group, head_blocks, item % head_blocks);
    const int64_t head = kv_head * group + heads.begin;
    const int64_t first = at.tile * kTile, queries = std::min(kTile, at.length - first);
    const int64_t row = at.begin + first;
    attention::forward({.dtype = args.in[0].dtype,
                        .head_dim = d,
                        .scale = shape_.scale,
                        .q = head_rows(args.in[0], row, head * d, d),
                        .out = head_rows(args.out[0], row, head * d, d),
                        .lse = head_rows(args.out[1], row, head, 1),
                        .queries = queries,
                        .heads = heads.end - heads.begin,
                        .k = args.in[1].slice_rows(at.begin, at.length).slice_cols(kv_head * d, d),
                        .v = args.in[2].slice_rows(at.begin, at.length).slice_cols(kv_head * d, d),
                        .keys = first + queries,
                        .causal = true},
                       own);
  });
}

void Attention::backward(const CpuContext& context, const BackwardArgs& args) const {
  const int64_t d = shape_.head_dim, group = shape_.group(), tokens = args.in[0].rows;
  auto* memory = reinterpret_cast<float*>(context.scratch.data());
  const std::span<const Piece> docs =
      pieces_of(*context.tokens, std::numeric_limits<int32_t>::max(), memory);  // each whole
  const int64_t longest = docs.empty() ? 0 : docs.front().length;
  const int64_t slot = aligned(attention::backward_floats(d, longest));
  // dk and dv of every query head, [T, Hq, d], where a group shares keys and values.
  float* dk_heads = memory + piece_floats(tokens);
  const int64_t width = shape_.query_heads * d;
  float* dv_heads = dk_heads + (group == 1 ? 0 : aligned(tokens * width));
  float* slots = dv_heads + (group == 1 ? 0 : aligned(tokens * width));
  const TensorView dk = group == 1 ? args.in_grad[1] : dense(dk_heads, DType::kF32, tokens, width);
  const TensorView dv = group == 1 ? args.in_grad[2] : dense(dv_heads, DType::kF32, tokens, width);
  const int64_t heads = shape_.query_heads;
  run_items(context, static_cast<int64_t>(docs.size()) * heads, slot, slots, [&](int64_t item, float* own) {
    const Piece& doc = docs[static_cast<size_t>(item / heads)];
    const int64_t head = item % heads;
    const auto part = [&](const TensorView& view, int64_t column, int64_t cols) {
      return view.empty() ? view : view.slice_rows(doc.begin, doc.length).slice_cols(column, cols);
    };
    attention::backward({.scale = shape_.scale,
                         .q = part(args.in[0], head * d, d),
                         .k = part(args.in[1], head / group * d, d),
                         .v = part(args.in[2], head / group * d, d),
                         .out = part(args.out[0], head * d, d),
                         .out_grad = part(args.out_grad[0], head * d, d),
                         .lse = part(args.out[1], head, 1),
                         .dq = part(args.in_grad[0], head * d, d),
                         .dk = part(dk, head * d, d),
                         .dv = part(dv, head * d, d),
                         .add_dq = args.add_in_grad[0],
                         .add_dk = group == 1 && args.add_in_grad[1],
                         .add_dv = group == 1 && args.add_in_grad[2]},
                        own);
  });
  if (group == 1) return;
  context.pool->parallel_for(tokens, 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t head = 0; head < shape_.kv_heads; ++head) {
        const int64_t from = t * width + head * group * d;
        if (!args.in_grad[1].empty()) {
          attention::sum_heads(dk_heads + from, group, d, args.in_grad[1].slice_cols(head * d, d), t,
                               args.add_in_grad[1]);
        }
        if (!args.in_grad[2].empty()) {
          attention::sum_heads(dv_heads + from, group, d, args.in_grad[2].slice_cols(head * d, d), t,
                               args.add_in_grad[2]);
        }
      }
    }
  });
}

void attention_decode(const CpuContext& context, const AttentionShape& shape, const TensorView& q,
                      std::span<const CachedSequence> sequences, const TensorView& out) {
  const int64_t d = shape.head_dim, group = shape.group();
  const int64_t blocks = div_ceil(group, kTile);  // the heads of a group stand as the queries of a tile
  const int64_t per_sequence = shape.kv_heads * blocks;
  const int64_t slot = aligned(attention::forward_floats(d, 1));
  const auto count = static_cast<int64_t>(sequences.size()) * per_sequence;
  auto* scratch = reinterpret_cast<float*>(context.scratch.data());
  run_items(context, count, slot, scratch, [&](int64_t item, float* own) {
    const int64_t row = item / per_sequence;
    const CachedSequence& sequence = sequences[static_cast<size_t>(row)];
    const int64_t kv_head = item % per_sequence / blocks;
    const Part heads = part_of(group, blocks, item % blocks);
    const int64_t column = (kv_head * group + heads.begin) * d;
    attention::forward({.dtype = q.dtype,
                        .head_dim = d,
                        .scale = shape.scale,
                        .q = {q.slice_rows(row, 1).slice_cols(column, d).data, d, 0},
                        .out = {out.slice_rows(row, 1).slice_cols(column, d).data, d, 0},
                        .lse = {},
                        .queries = heads.end - heads.begin,
                        .heads = 1,
                        .k = sequence.k.slice_cols(kv_head * d, d),
                        .v = sequence.v.slice_cols(kv_head * d, d),
                        .keys = sequence.length,
                        .causal = false},
                       own);
  });
}

int64_t attention_decode_scratch_bytes(const AttentionShape& shape, int threads) {
  return size_of(DType::kF32) * threads * aligned(attention::forward_floats(shape.head_dim, 1));
}

}  // namespace lazytrain::ops
