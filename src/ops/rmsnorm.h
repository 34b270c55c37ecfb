// y = w ⊙ bf(x · rstd), rstd = (mean_j x_j² + eps)^-½: in bf16 the normalised value is rounded before the product and
// the product again (reference: models, RMSNorm of the Qwen2 kind). Shapes: x, y [T, H]; w [H]; rstd [T] fp32.
#pragma once

#include "ops/op.h"

namespace lazytrain::ops {

// Outputs "out" [T, H] and "rstd" [T, 1] fp32; parameter "weight" [H]. With x̂ = rstd x and dŷ = w ⊙ dy:
// dx (+)= rstd (dŷ - x̂ mean(dŷ ⊙ x̂)), dw (+)= Σ_t dy ⊙ x̂ in fp32. The rows of dw are summed in blocks whose number
// depends on T alone, then block by block: the same bits for every thread count. An empty gradient view is not
// computed.
class RmsNorm final : public CpuOp {
 public:
  RmsNorm(int64_t width, float eps) : width_(width), eps_(eps) {}

  std::string_view name() const override { return "rmsnorm"; }
  std::vector<graph::ValueSpec> outputs() const override;
  std::vector<graph::ParameterSpec> parameters() const override;
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override;
  graph::Reads backward_reads() const override { return {.inputs = {0}, .outputs = {1}}; }
  bool cheap_to_recompute() const override { return true; }
  float eps() const { return eps_; }

  void forward(const CpuContext& context, const ForwardArgs& args) const override;
  void backward(const CpuContext& context, const BackwardArgs& args) const override;
  int64_t cpu_scratch_bytes(const graph::Dims& dims, int threads) const override;

 private:
  int64_t width_;
  float eps_;
};

}  // namespace lazytrain::ops
