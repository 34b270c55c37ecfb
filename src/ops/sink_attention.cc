#include "ops/sink_attention.h"

#include "base/arith.h"
#include "ops/row_work.h"

namespace lazytrain::ops {

SinkAttention::SinkAttention(const SinkAttentionShape& shape) : shape_(shape) {
  div_exact(shape.query_heads, shape.kv_heads, "sink_attention: query heads a key/value head");
}

std::vector<graph::ValueSpec> SinkAttention::outputs() const {
  return {{.name = "out", .width = shape_.query_heads * shape_.head_dim},
          {.name = "lse", .width = shape_.query_heads, .element = graph::Element::kF32}};
}

std::vector<graph::ParameterSpec> SinkAttention::parameters() const {
  return {{.name = "sinks", .shape = {shape_.query_heads}, .init = graph::Init::kNormal}};
}

graph::Work SinkAttention::forward_work(const graph::Dims& dims) const {
  const int64_t q = shape_.query_heads * shape_.head_dim, kv = shape_.kv_heads * shape_.head_dim;
  const auto context = static_cast<double>(dims.context), window = static_cast<double>(shape_.window);
  // Tokens attended to, in the mean over a document: half of it, or the window less what its first tokens lack.
  const bool whole = shape_.window == 0 || window >= context;
  const double pairs = whole ? context / 2 : window - window * window / (2 * context);
  graph::Work work = row_work(dims, 0, 2 * q + 2 * kv, shape_.query_heads);
  work.flops = 4 * static_cast<double>(dims.tokens) * pairs * static_cast<double>(q);
  return work;
}

graph::Work SinkAttention::backward_work(const graph::Dims& dims) const {
  const int64_t q = shape_.query_heads * shape_.head_dim, kv = shape_.kv_heads * shape_.head_dim;
  // Five products where forward has two: S again, dP, dv, dk, dq.
  graph::Work work = row_work(dims, 0, 4 * q + 4 * kv, shape_.query_heads);
  work.flops = 2.5 * forward_work(dims).flops;
  return work;
}

}  // namespace lazytrain::ops
