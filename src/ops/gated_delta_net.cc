#include "ops/gated_delta_net.h"

#include "base/arith.h"
#include "ops/row_work.h"

namespace lazytrain::ops {
namespace {
constexpr int64_t kChunk = 64;
}

GatedDeltaNet::GatedDeltaNet(const DeltaNetShape& shape) : shape_(shape) {
  div_exact(shape.value_heads, shape.key_heads, "gated_delta_net: value heads a key head");
}

std::vector<graph::ValueSpec> GatedDeltaNet::outputs() const {
  return {{.name = "out", .width = shape_.value_width()}, {.name = "inverse", .width = kChunk * shape_.value_heads}};
}

graph::Work GatedDeltaNet::forward_work(const graph::Dims& dims) const {
  constexpr double kC = kChunk;
  const auto dk = static_cast<double>(shape_.key_dim), dv = static_cast<double>(shape_.value_dim);
  // Multiply-adds a token and value head: K Kᵀ, Q Kᵀ, T·Kβγ; T·Vβ, P·V'; W·S, Q·S, Kᵀ·V'; the inverse. The zeros above
  // the diagonals are computed.
  const double products = 3 * kC * dk + 2 * kC * dv + 3 * dk * dv + kC * kC / 3;
  graph::Work work =
      row_work(dims, 0, 2 * shape_.key_width() + 2 * shape_.value_width() + (kChunk + 1) * shape_.value_heads,
               shape_.value_heads);
  work.flops = 2 * products * static_cast<double>(shape_.value_heads) * static_cast<double>(dims.tokens);
  return work;
}

graph::Work GatedDeltaNet::backward_work(const graph::Dims& dims) const {
  const graph::Work forward = forward_work(dims);
  return {.flops = 2 * forward.flops, .bytes = 2 * forward.bytes};
}

}  // namespace lazytrain::ops
