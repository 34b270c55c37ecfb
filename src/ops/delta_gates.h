// The two gates of a DeltaNet head: β = σ(b), g = -exp(A_log) softplus(a + dt_bias), γ its running sum within a chunk
// of the scan (reference: models, gated DeltaNet forward and chunked form). Declared for planning; there is no kernel.
#pragma once

#include "graph/op_kind.h"

namespace lazytrain::ops {

// Inputs b, a [T, heads]; outputs "beta" [T, heads] and "gamma" [T, heads] fp32; parameters "A_log", "dt_bias" [heads].
// Backward runs sigmoid and softplus again from b and a.
class DeltaGates final : public graph::OpKind {
 public:
  explicit DeltaGates(int64_t heads) : heads_(heads) {}

  std::string_view name() const override { return "delta_gates"; }
  std::vector<graph::ValueSpec> outputs() const override;
  std::vector<graph::ParameterSpec> parameters() const override;
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override;
  graph::Reads backward_reads() const override { return {.inputs = {0, 1}, .outputs = {}}; }
  bool cheap_to_recompute() const override { return true; }
  bool mixes_tokens() const override { return true; }

 private:
  int64_t heads_;
};

}  // namespace lazytrain::ops
