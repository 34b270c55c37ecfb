// out = silu(gate) ⊙ up, silu(z) = z σ(z) (reference: models, the MLP). Shapes: gate, up, out [T, I].
#pragma once

#include "ops/op.h"

namespace lazytrain::ops {

// fp32 inside, one rounding. dgate (+)= dout ⊙ up ⊙ σ(g)(1 + g(1 - σ(g))), dup (+)= dout ⊙ silu(g). An empty gradient
// view is not computed.
class SwiGlu final : public CpuOp {
 public:
  explicit SwiGlu(int64_t width) : width_(width) {}

  std::string_view name() const override { return "swiglu"; }
  std::vector<graph::ValueSpec> outputs() const override { return {{.name = "out", .width = width_}}; }
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override;
  graph::Reads backward_reads() const override { return {.inputs = {0, 1}, .outputs = {}}; }
  bool cheap_to_recompute() const override { return true; }

  void forward(const CpuContext& context, const ForwardArgs& args) const override;
  void backward(const CpuContext& context, const BackwardArgs& args) const override;

 private:
  int64_t width_;
};

}  // namespace lazytrain::ops
