// y = bf(x · rstd · (1 + w)), rstd = (mean_j x_j² + eps)^-½: one rounding, and a weight around 0 (reference: models,
// ZRMS). Declared for planning; there is no kernel.
#pragma once

#include "graph/op_kind.h"

namespace lazytrain::ops {

// Over each of `groups` heads of `width`: input and output "out" [T, groups · width], output "rstd" [T, groups] fp32,
// parameter "weight" [width], shared by the heads. Backward is RmsNorm's with 1 + w for w: it reads x and rstd.
class ZeroCenteredRmsNorm final : public graph::OpKind {
 public:
  ZeroCenteredRmsNorm(int64_t groups, int64_t width, float eps) : groups_(groups), width_(width), eps_(eps) {}

  std::string_view name() const override { return "zero_centered_rmsnorm"; }
  std::vector<graph::ValueSpec> outputs() const override;
  std::vector<graph::ParameterSpec> parameters() const override;
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override;
  graph::Reads backward_reads() const override { return {.inputs = {0}, .outputs = {1}}; }
  bool cheap_to_recompute() const override { return true; }

  float eps() const { return eps_; }

 private:
  int64_t groups_;
  int64_t width_;
  float eps_;
};

}  // namespace lazytrain::ops
