#include "model/qwen3_5.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "model/decoder_ends.h"
#include "model/dense_decoder.h"
#include "model/layer_types.h"
#include "ops/add.h"
#include "ops/attention.h"
#include "ops/causal_conv1d.h"
#include "ops/delta_gates.h"
#include "ops/gated_delta_net.h"
#include "ops/gated_rmsnorm.h"
#include "ops/l2norm.h"
#include "ops/linear.h"
#include "ops/rotary.h"
#include "ops/sigmoid_gate.h"
#include "ops/split.h"
#include "ops/swiglu.h"
#include "ops/zero_centered_rmsnorm.h"

namespace lazytrain::model {
namespace {

using graph::OpKind;
using graph::Unit;
using graph::UnitBuilder;
using graph::UnitKind;
using graph::ValueId;
using Kind = std::shared_ptr<const OpKind>;

constexpr int64_t kMaxHeads = int64_t{1} << 16;
constexpr int64_t kMaxHeadDim = int64_t{1} << 12;

template <typename T, typename... Args>
Kind kind(Args&&... args) {
  return std::make_shared<T>(std::forward<Args>(args)...);
}

// The op kinds of the layers: one object each, shared by all of them. T tokens; H hidden, Q = query width, K = kv
// width, I inner; Kd, Vd widths of a DeltaNet's keys and values, C = 2 Kd + Vd.
struct Kinds {
  explicit Kinds(const ModelConfig& c) : Kinds(c, static_cast<float>(c.rms_norm_eps), shape_of(*c.delta_net)) {}

  Kind norm, add, gate_up, swiglu, down;
  Kind query, key_value, split_query, query_norm, key_norm, rotate_query, rotate_key, attention, attention_gate, output;
  Kind qkv, z, head_gate, conv, split_qkv, l2norm, gates, scan, gated_norm, linear_output;

 private:
  static ops::DeltaNetShape shape_of(const DeltaNetConfig& d) {
    return {.key_heads = d.key_heads, .value_heads = d.value_heads, .key_dim = d.key_dim, .value_dim = d.value_dim};
  }

  Kinds(const ModelConfig& c, float eps, const ops::DeltaNetShape& d)
      : norm(kind<ops::ZeroCenteredRmsNorm>(1, c.hidden, eps)),
        add(kind<ops::Add>(c.hidden)),
        gate_up(kind<ops::Linear>(c.hidden, c.intermediate, false)),
        swiglu(kind<ops::SwiGlu>(c.intermediate)),
        down(kind<ops::Linear>(c.intermediate, c.hidden, false)),
        query(kind<ops::Linear>(c.hidden, 2 * c.query_width(), false)),
        key_value(kind<ops::Linear>(c.hidden, c.kv_width(), false)),
        split_query(
            kind<ops::Split>(c.query_heads, std::vector<ops::SplitPart>{{"q", c.head_dim}, {"gate", c.head_dim}})),
        query_norm(kind<ops::ZeroCenteredRmsNorm>(c.query_heads, c.head_dim, eps)),
        key_norm(kind<ops::ZeroCenteredRmsNorm>(c.kv_heads, c.head_dim, eps)),
        rotate_query(kind<ops::Rotary>(c.query_heads, c.head_dim, inverse_frequencies(c.rope, c.head_dim), 1.0f)),
        rotate_key(kind<ops::Rotary>(c.kv_heads, c.head_dim, inverse_frequencies(c.rope, c.head_dim), 1.0f)),
        attention(kind<ops::Attention>(c.query_heads, c.kv_heads, c.head_dim,
                                       static_cast<float>(1 / std::sqrt(static_cast<double>(c.head_dim))))),
        attention_gate(kind<ops::SigmoidGate>(c.query_width())),
        output(kind<ops::Linear>(c.query_width(), c.hidden, false)),
        qkv(kind<ops::Linear>(c.hidden, 2 * d.key_width() + d.value_width(), false)),
        z(kind<ops::Linear>(c.hidden, d.value_width(), false)),
        head_gate(kind<ops::Linear>(c.hidden, d.value_heads, false)),
        conv(kind<ops::CausalConv1d>(2 * d.key_width() + d.value_width(), c.delta_net->conv_taps)),
        split_qkv(kind<ops::Split>(
            1, std::vector<ops::SplitPart>{{"q", d.key_width()}, {"k", d.key_width()}, {"v", d.value_width()}})),
        l2norm(kind<ops::L2Norm>(d.key_heads, d.key_dim)),
        gates(kind<ops::DeltaGates>(d.value_heads)),
        scan(kind<ops::GatedDeltaNet>(d)),
        gated_norm(kind<ops::GatedRmsNorm>(d.value_heads, d.value_dim, eps)),
        linear_output(kind<ops::Linear>(d.value_width(), c.hidden, false)) {}
};

// One layer as it is built: x -> x + Mixer(Norm(x)) -> that + Mlp(Norm(that)).
class Layer {
 public:
  Layer(const Kinds& kinds, const ModelConfig& config, const std::string& prefix, int64_t index)
      : k_(kinds),
        u_(fmt::format("layer.{}", index), UnitKind::kLayer, fmt::format("{}layers.{}.", prefix, index)),
        x_(u_.boundary(config.hidden)) {}

  Unit build(LayerType type) {
    const ValueId n1 = add(k_.norm, {x_}, "input_layernorm");                                      // [T, H]
    const ValueId mixed = type == LayerType::kFullAttention ? full_attention(n1) : delta_net(n1);  // [T, H]
    const ValueId h = add(k_.add, {x_, mixed}, "mixer_residual");                                  // [T, H]
    const ValueId n2 = add(k_.norm, {h}, "post_attention_layernorm");                              // [T, H]
    const ValueId gate = add(k_.gate_up, {n2}, "mlp.gate_proj");                                   // [T, I]
    const ValueId up = add(k_.gate_up, {n2}, "mlp.up_proj");                                       // [T, I]
    const ValueId a = add(k_.swiglu, {gate, up}, "mlp.swiglu");                                    // [T, I]
    return u_.finish(add(k_.add, {h, add(k_.down, {a}, "mlp.down_proj")}, "mlp_residual"));        // [T, H]
  }

 private:
  ValueId add(const Kind& op, std::vector<ValueId> inputs, const char* scope) {
    return u_.add(op, std::move(inputs), scope).front();
  }

  ValueId full_attention(ValueId n) {
    const auto split = u_.add(k_.split_query, {add(k_.query, {n}, "self_attn.q_proj")}, "self_attn.q_split");
    const ValueId q = add(k_.rotate_query, {add(k_.query_norm, {split[0]}, "self_attn.q_norm")}, "self_attn.q_rotary");
    const ValueId key = add(k_.key_value, {n}, "self_attn.k_proj");  // [T, K]
    const ValueId k = add(k_.rotate_key, {add(k_.key_norm, {key}, "self_attn.k_norm")}, "self_attn.k_rotary");
    const ValueId v = add(k_.key_value, {n}, "self_attn.v_proj");                   // [T, K]
    const ValueId o = add(k_.attention, {q, k, v}, "self_attn");                    // [T, Q]
    const ValueId gated = add(k_.attention_gate, {o, split[1]}, "self_attn.gate");  // [T, Q]
    return add(k_.output, {gated}, "self_attn.o_proj");
  }

  ValueId delta_net(ValueId n) {
    const ValueId mixed = add(k_.qkv, {n}, "linear_attn.in_proj_qkv");  // [T, C]
    const ValueId z = add(k_.z, {n}, "linear_attn.in_proj_z");          // [T, Vd]
    const ValueId b = add(k_.head_gate, {n}, "linear_attn.in_proj_b");  // [T, Hv]
    const ValueId a = add(k_.head_gate, {n}, "linear_attn.in_proj_a");  // [T, Hv]
    const auto qkv = u_.add(k_.split_qkv, {add(k_.conv, {mixed}, "linear_attn.conv1d")}, "linear_attn.split");
    const ValueId q = add(k_.l2norm, {qkv[0]}, "linear_attn.q_norm");                        // [T, Kd]
    const ValueId k = add(k_.l2norm, {qkv[1]}, "linear_attn.k_norm");                        // [T, Kd]
    const auto gates = u_.add(k_.gates, {b, a}, "linear_attn");                              // [T, Hv]
    const ValueId o = add(k_.scan, {q, k, qkv[2], gates[0], gates[1]}, "linear_attn.scan");  // [T, Vd]
    return add(k_.linear_output, {add(k_.gated_norm, {o, z}, "linear_attn.norm")}, "linear_attn.out_proj");
  }

  const Kinds& k_;
  UnitBuilder u_;
  ValueId x_;
};

void read_delta_net(ConfigReader& reader, ModelConfig& config) {
  DeltaNetConfig d;
  d.key_heads = reader.integer_or("linear_num_key_heads", 16, 1, kMaxHeads);
  d.value_heads = reader.integer_or("linear_num_value_heads", 32, 1, kMaxHeads);
  d.key_dim = reader.integer_or("linear_key_head_dim", 128, 1, kMaxHeadDim);
  d.value_dim = reader.integer_or("linear_value_head_dim", 128, 1, kMaxHeadDim);
  d.conv_taps = reader.integer_or("linear_conv_kernel_dim", 4, 1, 64);
  if (d.value_heads % d.key_heads != 0) {
    reader.refuse("linear_num_value_heads", fmt::format("is not a multiple of linear_num_key_heads {}", d.key_heads));
  }
  config.delta_net = d;
}

}  // namespace

void read_qwen3_5(ConfigReader& reader, ModelConfig& config) {
  config.kv_heads = reader.integer("num_key_value_heads", 1, config.query_heads);
  config.max_positions = reader.integer_or("max_position_embeddings", 32768, 1, kMaxPositions);
  read_delta_net(reader, config);
  const int64_t interval = reader.integer_or("full_attention_interval", 4, 1, INT32_MAX);
  config.layer_types =
      read_layer_types(reader, config.layers, {LayerType::kFullAttention, LayerType::kLinearAttention});
  for (int64_t i = static_cast<int64_t>(config.layer_types.size()); i < config.layers; ++i) {
    config.layer_types.push_back((i + 1) % interval == 0 ? LayerType::kFullAttention : LayerType::kLinearAttention);
  }
  if (config.rope.type != RopeType::kDefault) {
    reader.refuse(reader.has("rope_parameters") ? "rope_parameters" : "rope_scaling",
                  "qwen3_5 models are supported with rope_type default only");
  }
  reader.require("model_type", config.nested ? "qwen3_5_text" : config.model_type,
                 "the text model's type must be \"qwen3_5_text\"");
  reader.require("attn_output_gate", true, "full attention without its output gate is not supported");
  reader.require("attention_bias", false, "biases of the projections are not supported");
  reader.require("mamba_ssm_dtype", "float32", "the state of the linear attention is kept in float32 only");
  reader.require("mlp_only_layers", Json::array(), "only dense models without exceptions are supported");
  const std::string gate = reader.string_or("output_gate_type", "swish");
  if (gate != "swish" && gate != "silu") {
    reader.refuse("output_gate_type", "the activation inside the gated norm must be \"swish\"");
  }
  // Heads that predict further tokens: their tensors are left out.
  reader.integer_or("mtp_num_hidden_layers", 0, 0, 64);
  reader.boolean_or("mtp_use_dedicated_embeddings", false);
}

graph::Graph build_qwen3_5(const ModelConfig& config) {
  const Kinds kinds(config);
  const std::string prefix = config.nested ? "model.language_model." : "model.";
  graph::Graph graph = build_decoder(config, "qwen3_5", prefix, kinds.norm, [&](int64_t index) {
    return Layer(kinds, config, prefix, index).build(config.layer_types[static_cast<size_t>(index)]);
  });
  graph.left_out = {"model.visual.", "mtp."};
  return graph;
}

}  // namespace lazytrain::model
