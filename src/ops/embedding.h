// out[t] = W[id_t]; dW[id_t] (+)= dout[t] (reference: models, backward of the embedding).
#pragma once

#include "ops/op.h"

namespace lazytrain::ops {

// No inputs: the ids are context.tokens->ids, each in [0, vocabulary) (checked by the caller). Parameter "weight"
// [vocabulary, hidden] in the activation dtype, output "out" [T, hidden]. The rows of equal ids are added in token
// order by one thread, so the gradient (fp32) does not depend on the threads.
class Embedding final : public CpuOp {
 public:
  Embedding(int64_t vocabulary, int64_t hidden);

  std::string_view name() const override { return "embedding"; }
  std::vector<graph::ValueSpec> outputs() const override;
  std::vector<graph::ParameterSpec> parameters() const override;
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override;
  graph::Reads backward_reads() const override { return {}; }
  bool cheap_to_recompute() const override { return true; }

  void forward(const CpuContext& context, const ForwardArgs& args) const override;
  void backward(const CpuContext& context, const BackwardArgs& args) const override;
  int64_t cpu_scratch_bytes(const graph::Dims& dims, int threads) const override;

 private:
  int64_t vocabulary_;
  int64_t hidden_;
};

}  // namespace lazytrain::ops
