// The gated delta rule, in chunks of 64 tokens (reference: models, chunked form). A value head keeps a state S [dk,
// dv]:
//   S ← e^{g_t} S;  S ← S + k_t ⊗ β_t (v_t - Sᵀ k_t);  o_t = dk^-½ Sᵀ q_t
// Declared for planning; there is no kernel.
#pragma once

#include "graph/op_kind.h"

namespace lazytrain::ops {

struct DeltaNetShape {
  int64_t key_heads = 0;    // Hk, of q and k
  int64_t value_heads = 0;  // Hv, a multiple of Hk: value head h uses key head h / (Hv / Hk)
  int64_t key_dim = 0;      // dk
  int64_t value_dim = 0;    // dv

  int64_t key_width() const { return key_heads * key_dim; }
  int64_t value_width() const { return value_heads * value_dim; }
};

// Inputs q, k [T, Hk dk] (normalised), v [T, Hv dv], beta [T, Hv], gamma [T, Hv] fp32. Outputs "out" [T, Hv dv] and
// "inverse" [T, 64 Hv], the unit triangular (I + A)^-1 of each chunk. Backward runs the scan of states again from
// `inverse`; states and their gradients are transients.
class GatedDeltaNet final : public graph::OpKind {
 public:
  explicit GatedDeltaNet(const DeltaNetShape& shape);

  std::string_view name() const override { return "gated_delta_net"; }
  std::vector<graph::ValueSpec> outputs() const override;
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override;
  graph::Reads backward_reads() const override { return {.inputs = {0, 1, 2, 3, 4}, .outputs = {1}}; }
  bool mixes_tokens() const override { return true; }

 private:
  DeltaNetShape shape_;
};

}  // namespace lazytrain::ops
