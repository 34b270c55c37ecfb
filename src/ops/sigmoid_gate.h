// out = x ⊙ σ(gate) (reference: models, gated full attention). Declared for planning; there is no kernel.
#pragma once

#include "graph/op_kind.h"

namespace lazytrain::ops {

// Inputs x, gate and output "out", all [T, width]. dx = dout ⊙ σ(gate), dgate = dout ⊙ x ⊙ σ(gate)(1 - σ(gate)).
class SigmoidGate final : public graph::OpKind {
 public:
  explicit SigmoidGate(int64_t width) : width_(width) {}

  std::string_view name() const override { return "sigmoid_gate"; }
  std::vector<graph::ValueSpec> outputs() const override { return {{.name = "out", .width = width_}}; }
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override;
  graph::Reads backward_reads() const override { return {.inputs = {0, 1}, .outputs = {}}; }
  bool cheap_to_recompute() const override { return true; }

 private:
  int64_t width_;
};

}  // namespace lazytrain::ops
