// Graphs for the tests of rooms that have no models: ops that declare what a decoder's ops declare and compute nothing.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace lazytrain::graph::testing {

struct ToyOp final : OpKind {
  std::string op_name;
  std::vector<ValueSpec> outs;
  std::vector<ParameterSpec> params;
  Reads reads;
  bool cheap = false;
  bool through = false;
  bool loss = false;
  double flops = 0;  // a token

  std::string_view name() const override { return op_name; }
  std::vector<ValueSpec> outputs() const override { return outs; }
  std::vector<ParameterSpec> parameters() const override { return params; }
  Work forward_work(const Dims& d) const override { return {flops * static_cast<double>(d.tokens), bytes(d)}; }
  Work backward_work(const Dims& d) const override { return {2 * flops * static_cast<double>(d.tokens), 2 * bytes(d)}; }
  Reads backward_reads() const override { return reads; }
  bool cheap_to_recompute() const override { return cheap; }
  bool passes_gradient_through() const override { return through; }
  bool is_loss() const override { return loss; }

 private:
  double bytes(const Dims& d) const {
    double width = 1;
    for (const ValueSpec& out : outs) width += static_cast<double>(out.width);
    return width * static_cast<double>(d.tokens * d.activation_bytes);
  }
};

using Kind = std::shared_ptr<const OpKind>;

inline Kind toy(ToyOp op) { return std::make_shared<ToyOp>(std::move(op)); }

inline Kind toy_linear(int64_t in, int64_t out) {
  ToyOp op;
  op.op_name = "linear";
  op.outs = {{.name = "out", .width = out}};
  op.params = {{.name = "weight", .shape = {out, in}}};
  op.reads = {.inputs = {0}, .outputs = {}};
  op.flops = 2.0 * static_cast<double>(in * out);
  return toy(op);
}

inline Kind toy_norm(int64_t width) {
  ToyOp op;
  op.op_name = "norm";
  op.outs = {{.name = "out", .width = width}, {.name = "rstd", .width = 1, .element = Element::kF32}};
  op.params = {{.name = "weight", .shape = {width}, .init = Init::kOnes}};
  op.reads = {.inputs = {0}, .outputs = {1}};
  op.cheap = true;
  return toy(op);
}

// A row op of `inputs` that its backward reads.
inline Kind toy_product(int64_t width) {
  ToyOp op;
  op.op_name = "product";
  op.outs = {{.name = "out", .width = width}};
  op.reads = {.inputs = {0, 1}, .outputs = {}};
  op.cheap = true;
  return toy(op);
}

inline Kind toy_add(int64_t width) {
  ToyOp op;
  op.op_name = "add";
  op.outs = {{.name = "out", .width = width}};
  op.cheap = true;
  op.through = true;
  return toy(op);
}

inline Kind toy_attention(int64_t width, int64_t heads) {
  ToyOp op;
  op.op_name = "attention";
  op.outs = {{.name = "out", .width = width}, {.name = "lse", .width = heads, .element = Element::kF32}};
  op.reads = {.inputs = {0, 1, 2}, .outputs = {0, 1}};
  op.flops = 64;
  return toy(op);
}

// The units of a decoder of width 24 with 3 heads, one of them for keys and values, and 40 words.
inline constexpr int64_t kToyHidden = 24;
inline constexpr int64_t kToyVocabulary = 40;

inline Unit toy_embedding() {
  ToyOp op;
  op.op_name = "embedding";
  op.outs = {{.name = "out", .width = kToyHidden}};
  op.params = {{.name = "weight", .shape = {kToyVocabulary, kToyHidden}}};
  op.cheap = true;
  UnitBuilder u("embedding", UnitKind::kEmbedding, "");
  return u.finish(u.add(toy(op), {}, "embed")[0]);
}

inline constexpr int64_t kToyInner = 40;

inline Unit toy_layer(int index, int64_t inner = kToyInner) {
  constexpr int64_t kQuery = 24, kKey = 8;
  UnitBuilder u(fmt::format("layer.{}", index), UnitKind::kLayer, fmt::format("layers.{}.", index));
  const ValueId x = u.boundary(kToyHidden);
  const ValueId n1 = u.add(toy_norm(kToyHidden), {x}, "norm1")[0];
  const ValueId q = u.add(toy_linear(kToyHidden, kQuery), {n1}, "q")[0];
  const ValueId k = u.add(toy_linear(kToyHidden, kKey), {n1}, "k")[0];
  const ValueId v = u.add(toy_linear(kToyHidden, kKey), {n1}, "v")[0];
  const ValueId o = u.add(toy_attention(kQuery, 3), {q, k, v}, "attention")[0];
  const ValueId p = u.add(toy_linear(kQuery, kToyHidden), {o}, "o")[0];
  const ValueId h = u.add(toy_add(kToyHidden), {x, p}, "residual1")[0];
  const ValueId n2 = u.add(toy_norm(kToyHidden), {h}, "norm2")[0];
  const ValueId gate = u.add(toy_linear(kToyHidden, inner), {n2}, "gate")[0];
  const ValueId up = u.add(toy_linear(kToyHidden, inner), {n2}, "up")[0];
  const ValueId a = u.add(toy_product(inner), {gate, up}, "product")[0];
  const ValueId d = u.add(toy_linear(inner, kToyHidden), {a}, "down")[0];
  return u.finish(u.add(toy_add(kToyHidden), {h, d}, "residual2")[0]);
}

inline Unit toy_head(bool tied) {
  ToyOp op;
  op.op_name = "loss";
  op.params = {{.name = "weight", .shape = {kToyVocabulary, kToyHidden}}};
  op.reads = {.inputs = {0}, .outputs = {}};
  op.loss = true;
  op.flops = 2.0 * static_cast<double>(kToyVocabulary * kToyHidden);
  UnitBuilder u("head", UnitKind::kHead, "");
  const ValueId x = u.boundary(kToyHidden);
  const ValueId n = u.add(toy_norm(kToyHidden), {x}, "norm")[0];
  if (tied) {
    u.add_tied(toy(op), {n}, "embed.weight");
  } else {
    u.add(toy(op), {n}, "head");
  }
  return u.finish(-1);
}

inline Graph toy_graph(int layers, bool tied, int64_t inner = kToyInner) {
  Graph graph;
  graph.family = "toy";
  graph.fingerprint = fmt::format("toy-{}-{}", layers, tied);
  graph.hidden = kToyHidden;
  graph.vocabulary = kToyVocabulary;
  graph.tied = tied;
  graph.units.push_back(toy_embedding());
  for (int i = 0; i < layers; ++i) graph.units.push_back(toy_layer(i, inner));
  graph.units.push_back(toy_head(tied));
  return graph;
}

}  // namespace lazytrain::graph::testing
