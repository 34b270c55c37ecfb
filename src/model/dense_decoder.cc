#include "model/dense_decoder.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "model/decoder_ends.h"
#include "ops/add.h"
#include "ops/attention.h"
#include "ops/linear.h"
#include "ops/rmsnorm.h"
#include "ops/rotary.h"
#include "ops/swiglu.h"

namespace lazytrain::model {
namespace {

using graph::Unit;
using graph::UnitBuilder;
using graph::UnitKind;
using graph::ValueId;

// The op kinds of a decoder: one object each, shared by all layers.
struct Kinds {
  explicit Kinds(const ModelConfig& c)
      : norm(std::make_shared<ops::RmsNorm>(c.hidden, static_cast<float>(c.rms_norm_eps))),
        query(std::make_shared<ops::Linear>(c.hidden, c.query_width(), c.qkv_bias)),
        key_value(std::make_shared<ops::Linear>(c.hidden, c.kv_width(), c.qkv_bias)),
        rotate_query(
            std::make_shared<ops::Rotary>(c.query_heads, c.head_dim, inverse_frequencies(c.rope, c.head_dim), 1.0f)),
        rotate_key(
            std::make_shared<ops::Rotary>(c.kv_heads, c.head_dim, inverse_frequencies(c.rope, c.head_dim), 1.0f)),
        attention(std::make_shared<ops::Attention>(c.query_heads, c.kv_heads, c.head_dim,
                                                   static_cast<float>(1 / std::sqrt(static_cast<double>(c.head_dim))))),
        output(std::make_shared<ops::Linear>(c.query_width(), c.hidden, c.output_bias)),
        gate_up(std::make_shared<ops::Linear>(c.hidden, c.intermediate, c.mlp_bias)),
        swiglu(std::make_shared<ops::SwiGlu>(c.intermediate)),
        down(std::make_shared<ops::Linear>(c.intermediate, c.hidden, c.mlp_bias)),
        add(std::make_shared<ops::Add>(c.hidden)) {}

  std::shared_ptr<const graph::OpKind> norm, query, key_value, rotate_query, rotate_key, attention, output, gate_up,
      swiglu, down, add;
};

// x -> x + Attention(Norm(x)) -> that + Mlp(Norm(that)); T tokens, H hidden, Q = query width, K = kv width, I inner.
Unit decoder_layer(const Kinds& k, const ModelConfig& c, int64_t index) {
  UnitBuilder u(fmt::format("layer.{}", index), UnitKind::kLayer, fmt::format("model.layers.{}.", index));
  const auto add = [&u](const std::shared_ptr<const graph::OpKind>& kind, std::vector<ValueId> inputs,
                        const char* scope) { return u.add(kind, std::move(inputs), scope).front(); };
  const ValueId x = u.boundary(c.hidden);                                                      // [T, H]
  const ValueId n1 = add(k.norm, {x}, "input_layernorm");                                      // [T, H]
  const ValueId q = add(k.query, {n1}, "self_attn.q_proj");                                    // [T, Q]
  const ValueId key = add(k.key_value, {n1}, "self_attn.k_proj");                              // [T, K]
  const ValueId v = add(k.key_value, {n1}, "self_attn.v_proj");                                // [T, K]
  const ValueId rq = add(k.rotate_query, {q}, "self_attn.q_rotary");                           // [T, Q]
  const ValueId rk = add(k.rotate_key, {key}, "self_attn.k_rotary");                           // [T, K]
  const ValueId o = add(k.attention, {rq, rk, v}, "self_attn");                                // [T, Q]
  const ValueId h = add(k.add, {x, add(k.output, {o}, "self_attn.o_proj")}, "attn_residual");  // [T, H]
  const ValueId n2 = add(k.norm, {h}, "post_attention_layernorm");                             // [T, H]
  const ValueId gate = add(k.gate_up, {n2}, "mlp.gate_proj");                                  // [T, I]
  const ValueId up = add(k.gate_up, {n2}, "mlp.up_proj");                                      // [T, I]
  const ValueId a = add(k.swiglu, {gate, up}, "mlp.swiglu");                                   // [T, I]
  return u.finish(add(k.add, {h, add(k.down, {a}, "mlp.down_proj")}, "mlp_residual"));         // [T, H]
}

}  // namespace

graph::Graph build_dense_decoder(const ModelConfig& config, const std::string& family) {
  const Kinds kinds(config);
  return build_decoder(config, family, "model.", kinds.norm,
                       [&](int64_t index) { return decoder_layer(kinds, config, index); });
}

}  // namespace lazytrain::model
