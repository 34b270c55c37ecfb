// Chooses experts: the top k of x Wᵀ + b and the softmax over those k (GPT-OSS). Declared for planning; there is no
// kernel.
#pragma once

#include "graph/op_kind.h"

namespace lazytrain::ops {

// Input x [T, hidden]; outputs "scores" [T, k] and "experts" [T, k] (numbers, four bytes each), both fp32-sized;
// parameters "weight" [experts, hidden], "bias" [experts].
class ExpertRouter final : public graph::OpKind {
 public:
  ExpertRouter(int64_t hidden, int64_t experts, int64_t chosen) : hidden_(hidden), experts_(experts), chosen_(chosen) {}

  std::string_view name() const override { return "expert_router"; }
  std::vector<graph::ValueSpec> outputs() const override;
  std::vector<graph::ParameterSpec> parameters() const override;
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override;
  graph::Reads backward_reads() const override { return {.inputs = {0}, .outputs = {0, 1}}; }

 private:
  int64_t hidden_;
  int64_t experts_;
  int64_t chosen_;
};

}  // namespace lazytrain::ops
