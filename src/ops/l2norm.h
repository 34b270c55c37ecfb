// y = ρ x, ρ = (Σ_j x_j² + 1e-6)^-½ over each head: of the sum, not the mean (reference: models, gated DeltaNet
// forward). Declared for planning; there is no kernel.
#pragma once

#include "graph/op_kind.h"

namespace lazytrain::ops {

// Input and output "out" [T, heads · width], output "rnorm" ρ [T, heads] fp32. dx = ρ (dy - y ⟨dy, y⟩): reads y and ρ.
class L2Norm final : public graph::OpKind {
 public:
  L2Norm(int64_t heads, int64_t width) : heads_(heads), width_(width) {}

  std::string_view name() const override { return "l2norm"; }
  std::vector<graph::ValueSpec> outputs() const override;
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override;
  graph::Reads backward_reads() const override { return {.inputs = {}, .outputs = {0, 1}}; }
  bool cheap_to_recompute() const override { return true; }

 private:
  int64_t heads_;
  int64_t width_;
};

}  // namespace lazytrain::ops
