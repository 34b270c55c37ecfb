// The linear maps of a mixture of experts: each token goes through the k of E matrices that its router chose (GPT-OSS:
// x W_e + b_e, W_e [in, out]). Declared for planning; there is no kernel.
#pragma once

#include <string>

#include "graph/op_kind.h"

namespace lazytrain::ops {

struct ExpertLinearShape {
  std::string parameter;  // "gate_up_proj": the parameters are it [experts, in, out] and it + "_bias" [experts, out]
  int64_t experts = 0;
  int64_t chosen = 0;  // k, a token
  int64_t in = 0;
  int64_t out = 0;
  bool combine = false;
};

// Expanding: inputs x [T, in], experts [T, k]; output "<parameter>" [T, k · out]. Combining: inputs a [T, k · in],
// experts [T, k], scores [T, k]; output "<parameter>" [T, out], the experts' results weighted by their scores and
// added. Backward reads all inputs; dscore needs no result of an expert: it is ⟨da, a⟩ with da = dout W_eᵀ.
class ExpertLinear final : public graph::OpKind {
 public:
  explicit ExpertLinear(ExpertLinearShape shape) : shape_(std::move(shape)) {}

  std::string_view name() const override { return "expert_linear"; }
  std::vector<graph::ValueSpec> outputs() const override;
  std::vector<graph::ParameterSpec> parameters() const override;
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override;
  graph::Reads backward_reads() const override;
  double parameter_share() const override {
    return static_cast<double>(shape_.chosen) / static_cast<double>(shape_.experts);
  }

 private:
  double weights_touched(const graph::Dims& dims) const;  // elements of the matrices that any token goes through
  ExpertLinearShape shape_;
};

}  // namespace lazytrain::ops
