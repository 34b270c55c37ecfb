// y = x Wᵀ + b (reference: models, forward of the projections). Shapes: x [T, in], W [out, in], b [out], y [T, out].
#pragma once

#include "ops/gemm.h"
#include "ops/op.h"

namespace lazytrain::ops {

// Parameters "weight" [out, in] and, with a bias, "bias" [out]; both in the activation dtype. Sums are fp32; the bias
// is added before the one rounding to the activation dtype. Backward: dx (+)= dy W, dW (+)= dyᵀ x and
// db (+)= Σ_t dy, the last two fp32. An empty gradient view is not computed.
class Linear final : public CpuOp {
 public:
  Linear(int64_t in, int64_t out, bool bias, GemmStrategy strategy = preferred_gemm_strategy());

  std::string_view name() const override { return "linear"; }
  std::vector<graph::ValueSpec> outputs() const override;
  std::vector<graph::ParameterSpec> parameters() const override;
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override;
  graph::Reads backward_reads() const override { return {.inputs = {0}, .outputs = {}}; }
  int64_t in() const { return in_; }
  int64_t out() const { return out_; }
  bool has_bias() const { return bias_; }

  void forward(const CpuContext& context, const ForwardArgs& args) const override;
  void backward(const CpuContext& context, const BackwardArgs& args) const override;
  int64_t cpu_scratch_bytes(const graph::Dims& dims, int threads) const override;

 private:
  int64_t in_;
  int64_t out_;
  bool bias_;
  GemmStrategy strategy_;
};

}  // namespace lazytrain::ops
