// out = (u + 1) ⊙ g σ(1.702 g) with g = min(gate, 7), u = clamp(up, -7, 7); gate and up lie side by side, column by
// column (GPT-OSS's experts). Declared for planning; there is no kernel.
#pragma once

#include "graph/op_kind.h"

namespace lazytrain::ops {

// Input [T, 2 · width], output "out" [T, width].
class ClampedSwiGlu final : public graph::OpKind {
 public:
  explicit ClampedSwiGlu(int64_t width) : width_(width) {}

  std::string_view name() const override { return "clamped_swiglu"; }
  std::vector<graph::ValueSpec> outputs() const override { return {{.name = "out", .width = width_}}; }
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override;
  graph::Reads backward_reads() const override { return {.inputs = {0}, .outputs = {}}; }
  bool cheap_to_recompute() const override { return true; }

 private:
  int64_t width_;
};

}  // namespace lazytrain::ops
