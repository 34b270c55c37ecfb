// Causal grouped-query attention whose softmax has one more logit a head, a learned sink that no value stands behind,
// and that may look back over a window only (GPT-OSS). Declared for planning; there is no kernel.
#pragma once

#include "graph/op_kind.h"

namespace lazytrain::ops {

struct SinkAttentionShape {
  int64_t query_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t window = 0;  // tokens that a token attends to, itself included; 0: all before it
};

// Inputs q [T, Hq d], k, v [T, Hkv d]; outputs "out" [T, Hq d], "lse" [T, Hq] fp32 (with the sink); parameter "sinks"
// [Hq]. Reads in backward what Attention reads.
class SinkAttention final : public graph::OpKind {
 public:
  explicit SinkAttention(const SinkAttentionShape& shape);

  std::string_view name() const override { return "sink_attention"; }
  std::vector<graph::ValueSpec> outputs() const override;
  std::vector<graph::ParameterSpec> parameters() const override;
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override;
  graph::Reads backward_reads() const override { return {.inputs = {0, 1, 2}, .outputs = {0, 1}}; }
  bool mixes_tokens() const override { return true; }

 private:
  SinkAttentionShape shape_;
};

}  // namespace lazytrain::ops
