// Causal attention over the documents of a packed row, grouped query heads (reference: models, forward and backward):
//   S_ts = scale ⟨q_t, k_s⟩ for s <= t in the same document;  P = softmax_s S;  out_t = Σ_s P_ts v_s;  lse_t = ln Σ_s
//   e^S.
// Shapes: q, out [T, Hq·d]; k, v [T, Hkv·d]; lse [T, Hq] fp32. Query head h reads key/value head ⌊h / (Hq/Hkv)⌋.
#pragma once

#include "ops/op.h"

namespace lazytrain::ops {

struct AttentionShape {
  int64_t query_heads = 0;
  int64_t kv_heads = 0;  // divides query_heads
  int64_t head_dim = 0;
  float scale = 0;  // of the scores, usually head_dim^-½

  int64_t group() const { return query_heads / kv_heads; }
};

// Outputs "out" and "lse". No S x S matrix: tiles of 64 queries by 64 keys, fp32 in scratch; P stays fp32. A tile with
// every pair masked is not visited. Backward, with P = e^(S - lse) and Δ_t = ⟨dout_t, out_t⟩:
//   dv = Pᵀ dout;  dS = P ⊙ (dout vᵀ - Δ);  dq = scale dS k;  dk = scale dSᵀ q;  dk, dv summed over the group in order.
// All order of summation is fixed by the shapes, so the bits depend neither on the threads nor on their number; the
// kernels use fused multiply-add where the machine has it, so they may differ between kinds of machines. An empty
// gradient view is not written.
class Attention final : public CpuOp {
 public:
  Attention(int64_t query_heads, int64_t kv_heads, int64_t head_dim, float scale);

  std::string_view name() const override { return "attention"; }
  std::vector<graph::ValueSpec> outputs() const override;
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override;
  graph::Reads backward_reads() const override { return {.inputs = {0, 1, 2}, .outputs = {0, 1}}; }
  bool mixes_tokens() const override { return true; }
  const AttentionShape& shape() const { return shape_; }

  void forward(const CpuContext& context, const ForwardArgs& args) const override;
  void backward(const CpuContext& context, const BackwardArgs& args) const override;
  // Grows with T (never T²): one head's dq a thread, and dk, dv of each query head where heads share keys.
  int64_t cpu_scratch_bytes(const graph::Dims& dims, int threads) const override;

 private:
  AttentionShape shape_;
};

// The keys and values of one sequence that is being generated, the new token's included.
struct CachedSequence {
  TensorView k;        // [>= length, Hkv·d], activation dtype
  TensorView v;        // likewise
  int64_t length = 0;  // tokens to attend to, >= 1
};

// One new token for each of B sequences of any lengths: out[b] = attention of q[b] over all of sequences[b]. q, out are
// [B, Hq·d] in the activation dtype. Needs context.pool and attention_decode_scratch_bytes() of scratch; not tokens.
void attention_decode(const CpuContext& context, const AttentionShape& shape, const TensorView& q,
                      std::span<const CachedSequence> sequences, const TensorView& out);
int64_t attention_decode_scratch_bytes(const AttentionShape& shape, int threads);

}  // namespace lazytrain::ops
