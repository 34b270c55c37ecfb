// Rotary position embedding, rotate-half convention (reference: models, RoPE): pairs (j, j + r/2) of each head,
//   y_j = x_j cos - x_{j+r/2} sin,  y_{j+r/2} = x_{j+r/2} cos + x_j sin,  angle = position · inv_freq_j in fp32.
// Shapes: x, y [T, heads · d]; inv_freq [r/2] with r <= d, dimensions from r on pass unchanged.
#pragma once

#include "ops/op.h"

namespace lazytrain::ops {

// cos and sin are multiplied by `attention_scaling` (1 but for scaled frequencies). The rotation is fp32 with one
// rounding at the end; backward is the inverse rotation and reads nothing but the positions.
class Rotary final : public CpuOp {
 public:
  Rotary(int64_t heads, int64_t head_dim, std::vector<float> inv_freq, float attention_scaling);

  std::string_view name() const override { return "rotary"; }
  std::vector<graph::ValueSpec> outputs() const override { return {{.name = "out", .width = heads_ * head_dim_}}; }
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override;
  graph::Reads backward_reads() const override { return {}; }
  bool cheap_to_recompute() const override { return true; }
  int64_t heads() const { return heads_; }
  int64_t head_dim() const { return head_dim_; }
  std::span<const float> inv_freq() const { return inv_freq_; }
  float attention_scaling() const { return attention_scaling_; }

  void forward(const CpuContext& context, const ForwardArgs& args) const override;
  void backward(const CpuContext& context, const BackwardArgs& args) const override;

 private:
  int64_t heads_;
  int64_t head_dim_;
  std::vector<float> inv_freq_;
  float attention_scaling_;
};

}  // namespace lazytrain::ops
