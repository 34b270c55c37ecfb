#include "model/gpt_oss.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "model/decoder_ends.h"
#include "model/dense_decoder.h"
#include "model/layer_types.h"
#include "ops/add.h"
#include "ops/clamped_swiglu.h"
#include "ops/expert_linear.h"
#include "ops/expert_router.h"
#include "ops/linear.h"
#include "ops/rmsnorm.h"
#include "ops/rotary.h"
#include "ops/sink_attention.h"

namespace lazytrain::model {
namespace {

using graph::Unit;
using graph::UnitBuilder;
using graph::UnitKind;
using graph::ValueId;
using Kind = std::shared_ptr<const graph::OpKind>;

constexpr int64_t kMaxExperts = int64_t{1} << 14;

ops::SinkAttentionShape attention_shape(const ModelConfig& c, int64_t window) {
  return {.query_heads = c.query_heads, .kv_heads = c.kv_heads, .head_dim = c.head_dim, .window = window};
}

ops::ExpertLinearShape expert_shape(const ModelConfig& c, const char* parameter, int64_t in, int64_t out,
                                    bool combine) {
  return {.parameter = parameter,
          .experts = c.experts->experts,
          .chosen = c.experts->chosen,
          .in = in,
          .out = out,
          .combine = combine};
}

Kind rotary(const ModelConfig& c, int64_t heads) {
  return std::make_shared<ops::Rotary>(heads, c.head_dim, inverse_frequencies(c.rope, c.head_dim),
                                       static_cast<float>(c.rope.attention_scaling()));
}

// The op kinds of the layers: one object each, shared by all of them.
struct Kinds {
  explicit Kinds(const ModelConfig& c)
      : norm(std::make_shared<ops::RmsNorm>(c.hidden, static_cast<float>(c.rms_norm_eps))),
        query(std::make_shared<ops::Linear>(c.hidden, c.query_width(), c.qkv_bias)),
        key_value(std::make_shared<ops::Linear>(c.hidden, c.kv_width(), c.qkv_bias)),
        rotate_query(rotary(c, c.query_heads)),
        rotate_key(rotary(c, c.kv_heads)),
        full(std::make_shared<ops::SinkAttention>(attention_shape(c, 0))),
        sliding(std::make_shared<ops::SinkAttention>(attention_shape(c, c.sliding_window))),
        output(std::make_shared<ops::Linear>(c.query_width(), c.hidden, c.output_bias)),
        router(std::make_shared<ops::ExpertRouter>(c.hidden, c.experts->experts, c.experts->chosen)),
        gate_up(
            std::make_shared<ops::ExpertLinear>(expert_shape(c, "gate_up_proj", c.hidden, 2 * c.intermediate, false))),
        swiglu(std::make_shared<ops::ClampedSwiGlu>(c.experts->chosen * c.intermediate)),
        down(std::make_shared<ops::ExpertLinear>(expert_shape(c, "down_proj", c.intermediate, c.hidden, true))),
        add(std::make_shared<ops::Add>(c.hidden)) {}

  Kind norm, query, key_value, rotate_query, rotate_key, full, sliding, output, router, gate_up, swiglu, down, add;
};

// x -> x + Attention(Norm(x)) -> that + Experts(Norm(that)). T tokens; H hidden, Q = query width, K = kv width, I inner
// width of an expert, k experts a token.
Unit decoder_layer(const Kinds& kinds, const ModelConfig& c, int64_t index) {
  UnitBuilder u(fmt::format("layer.{}", index), UnitKind::kLayer, fmt::format("model.layers.{}.", index));
  const auto add = [&u](const Kind& kind, std::vector<ValueId> inputs, const char* scope) {
    return u.add(kind, std::move(inputs), scope).front();
  };
  const bool windowed = c.layer_types[static_cast<size_t>(index)] == LayerType::kSlidingAttention;
  const ValueId x = u.boundary(c.hidden);                                                              // [T, H]
  const ValueId n1 = add(kinds.norm, {x}, "input_layernorm");                                          // [T, H]
  const ValueId q = add(kinds.query, {n1}, "self_attn.q_proj");                                        // [T, Q]
  const ValueId k = add(kinds.key_value, {n1}, "self_attn.k_proj");                                    // [T, K]
  const ValueId v = add(kinds.key_value, {n1}, "self_attn.v_proj");                                    // [T, K]
  const ValueId rq = add(kinds.rotate_query, {q}, "self_attn.q_rotary");                               // [T, Q]
  const ValueId rk = add(kinds.rotate_key, {k}, "self_attn.k_rotary");                                 // [T, K]
  const ValueId o = add(windowed ? kinds.sliding : kinds.full, {rq, rk, v}, "self_attn");              // [T, Q]
  const ValueId h = add(kinds.add, {x, add(kinds.output, {o}, "self_attn.o_proj")}, "attn_residual");  // [T, H]
  const ValueId n2 = add(kinds.norm, {h}, "post_attention_layernorm");                                 // [T, H]
  const auto routes = u.add(kinds.router, {n2}, "mlp.router");                                         // 2 × [T, k]
  const ValueId gate_up = add(kinds.gate_up, {n2, routes[1]}, "mlp.experts");                          // [T, 2 k I]
  const ValueId a = add(kinds.swiglu, {gate_up}, "mlp.experts.swiglu");                                // [T, k I]
  const ValueId mixed = add(kinds.down, {a, routes[1], routes[0]}, "mlp.experts");                     // [T, H]
  return u.finish(add(kinds.add, {h, mixed}, "mlp_residual"));                                         // [T, H]
}

}  // namespace

void read_gpt_oss(ConfigReader& reader, ModelConfig& config) {
  config.kv_heads = reader.integer("num_key_value_heads", 1, config.query_heads);
  config.max_positions = reader.integer_or("max_position_embeddings", 131072, 1, kMaxPositions);
  config.qkv_bias = config.output_bias = reader.boolean_or("attention_bias", true);
  if (!reader.has("rope_scaling") && !reader.has("rope_parameters")) {
    reader.refuse("rope_scaling", "the rotary embedding of gpt_oss must be stated (rope_type \"yarn\")");
  }
  const int64_t experts = reader.integer("num_local_experts", 1, kMaxExperts);
  const int64_t chosen = reader.integer("num_experts_per_tok", 1, experts);
  if (reader.integer_or("experts_per_token", chosen, 1, kMaxExperts) != chosen) {
    reader.refuse("experts_per_token", fmt::format("contradicts num_experts_per_tok {}", chosen));
  }
  config.experts = ExpertsConfig{.experts = experts, .chosen = chosen};
  config.sliding_window = reader.integer_or("sliding_window", 128, 1, INT64_MAX);
  config.layer_types =
      read_layer_types(reader, config.layers, {LayerType::kFullAttention, LayerType::kSlidingAttention});
  for (int64_t i = static_cast<int64_t>(config.layer_types.size()); i < config.layers; ++i) {
    config.layer_types.push_back(i % 2 == 0 ? LayerType::kSlidingAttention : LayerType::kFullAttention);
  }
  reader.require("swiglu_limit", 7, "the experts' activation is supported with a limit of 7.0 only");
  reader.require("swiglu_alpha", 1.702, "the experts' activation is supported with alpha 1.702 only");
  reader.require("output_router_logits", false, "a loss on the router's balance is not supported");
  reader.number_or("router_aux_loss_coef", 0, 0, 1e6);  // no effect without output_router_logits
  reader.integer_or("initial_context_length", 4096, 1, kMaxPositions);
}

graph::Graph build_gpt_oss(const ModelConfig& config) {
  const Kinds kinds(config);
  return build_decoder(config, "gpt_oss", "model.", kinds.norm,
                       [&](int64_t index) { return decoder_layer(kinds, config, index); });
}

}  // namespace lazytrain::model
