// The LM head and the cross-entropy in one op; full logits never exist (reference: models, loss and its backward).
#pragma once

#include "ops/gemm.h"
#include "ops/op.h"

namespace lazytrain::ops {

// logits = n Wᵀ, n [T, hidden], W "weight" [vocabulary, hidden], both in the activation dtype; no outputs.
// loss.nll = Σ over tokens with target >= 0 of log Σ_v exp(l_v) - l_target, loss.count their number.
// dlogits = (softmax(l) - onehot(target)) loss_scale on those tokens; dn (+)= dlogits W, dW (+)= dlogitsᵀ n (fp32).
//
// Counted tokens are gathered and go through in chunks whose fp32 logits stay under 192 MiB. Each thread owns a range
// of the vocabulary in tiles: logits tile and its softmax sums first, then the gradients tile by tile while the tile
// is in cache, so only dn has to be added up between threads (in their order). Logits and sums are fp32, the loss is
// added in double; dlogits are rounded to bf16 only for kNative on bf16. Non-finite logits give a non-finite loss.
class LmHeadLoss final : public CpuOp {
 public:
  LmHeadLoss(int64_t hidden, int64_t vocabulary, GemmStrategy strategy = preferred_gemm_strategy());

  std::string_view name() const override { return "lm_head_loss"; }
  std::vector<graph::ValueSpec> outputs() const override { return {}; }
  std::vector<graph::ParameterSpec> parameters() const override;
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override;
  graph::Reads backward_reads() const override { return {.inputs = {0}, .outputs = {}}; }
  bool is_loss() const override { return true; }
  int64_t hidden() const { return hidden_; }
  int64_t vocabulary() const { return vocabulary_; }

  // The loss alone.
  void forward(const CpuContext& context, const ForwardArgs& args) const override;
  // Loss and gradients. An empty gradient view is not computed.
  void backward(const CpuContext& context, const BackwardArgs& args) const override;
  int64_t cpu_scratch_bytes(const graph::Dims& dims, int threads) const override;

 private:
  int64_t hidden_;
  int64_t vocabulary_;
  GemmStrategy strategy_;
};

// logits [T, vocabulary] fp32 = n Wᵀ, for generation. Scratch as said by lm_head_logits_scratch_bytes().
void lm_head_logits(const CpuContext& context, const TensorView& n, const TensorView& weight, const TensorView& logits,
                    GemmStrategy strategy = preferred_gemm_strategy());
int64_t lm_head_logits_scratch_bytes(int64_t tokens, int64_t hidden, int64_t vocabulary, DType activation, int threads,
                                     GemmStrategy strategy = preferred_gemm_strategy());

}  // namespace lazytrain::ops
