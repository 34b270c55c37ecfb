// y = w ⊙ x rstd ⊙ silu(z) over each head, rstd = (mean_j x_j² + eps)^-½, w as it is (reference: models, gated DeltaNet
// forward). Declared for planning; there is no kernel.
#pragma once

#include "graph/op_kind.h"

namespace lazytrain::ops {

// Inputs x, z and output "out" [T, heads · width], output "rstd" [T, heads] fp32, parameter "weight" [width].
class GatedRmsNorm final : public graph::OpKind {
 public:
  GatedRmsNorm(int64_t heads, int64_t width, float eps) : heads_(heads), width_(width), eps_(eps) {}

  std::string_view name() const override { return "gated_rmsnorm"; }
  std::vector<graph::ValueSpec> outputs() const override;
  std::vector<graph::ParameterSpec> parameters() const override;
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override;
  graph::Reads backward_reads() const override { return {.inputs = {0, 1}, .outputs = {1}}; }
  bool cheap_to_recompute() const override { return true; }

  float eps() const { return eps_; }

 private:
  int64_t heads_;
  int64_t width_;
  float eps_;
};

}  // namespace lazytrain::ops
