// out = a + b, the residual connection. Shapes: a, b, out [T, H].
#pragma once

#include "ops/op.h"

namespace lazytrain::ops {

// fp32 sum, one rounding. The gradient of both inputs is that of the output: a planner may give them one buffer, and
// then backward is not called; called, it copies or adds. An empty gradient view, or one that is the output's own
// memory and is not added to, is left alone.
class Add final : public CpuOp {
 public:
  explicit Add(int64_t width) : width_(width) {}

  std::string_view name() const override { return "add"; }
  std::vector<graph::ValueSpec> outputs() const override { return {{.name = "out", .width = width_}}; }
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override;
  graph::Reads backward_reads() const override { return {}; }
  bool cheap_to_recompute() const override { return true; }
  bool passes_gradient_through() const override { return true; }

  void forward(const CpuContext& context, const ForwardArgs& args) const override;
  void backward(const CpuContext& context, const BackwardArgs& args) const override;

 private:
  int64_t width_;
};

}  // namespace lazytrain::ops
