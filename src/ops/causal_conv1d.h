// out[t, c] = silu(Σ_τ w[c, 0, τ] · x[t - taps + 1 + τ, c]): depthwise, causal, zeros before a document's first token
// (reference: models, gated DeltaNet forward). Declared for planning; there is no kernel.
#pragma once

#include "graph/op_kind.h"

namespace lazytrain::ops {

// Input and output "out" [T, channels], parameter "weight" [channels, 1, taps]. Backward runs the sum again before the
// silu, so it reads the input alone.
class CausalConv1d final : public graph::OpKind {
 public:
  CausalConv1d(int64_t channels, int64_t taps) : channels_(channels), taps_(taps) {}

  std::string_view name() const override { return "causal_conv1d"; }
  std::vector<graph::ValueSpec> outputs() const override { return {{.name = "out", .width = channels_}}; }
  std::vector<graph::ParameterSpec> parameters() const override;
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override;
  graph::Reads backward_reads() const override { return {.inputs = {0}, .outputs = {}}; }
  bool cheap_to_recompute() const override { return true; }
  bool mixes_tokens() const override { return true; }

 private:
  int64_t channels_;
  int64_t taps_;
};

}  // namespace lazytrain::ops
