#include "model/qwen3_5.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "graph/pass.h"
#include "model/config_testing.h"
#include "model/family.h"

namespace lazytrain::model {
namespace {

using testing::qwen3_5_json;
using testing::qwen3_5_text_json;
using testing::with;
using Shapes = std::map<std::string, std::vector<int64_t>>;

graph::Graph build(const Json& json) { return build_graph(parse_config(json, "config.json")); }

graph::Graph build_published(const std::string& file) {
  const ModelConfig config = load_config(std::filesystem::path(LAZYTRAIN_SOURCE_DIR) / "configs" / file);
  EXPECT_THAT(config.warnings, ::testing::IsEmpty()) << file;
  return build_graph(config);
}

// As transformers 5.24 names and shapes the parameters of Qwen3_5ForCausalLM with this configuration.
Shapes expected_shapes(const std::string& prefix) {
  Shapes shapes = {
      {prefix + "embed_tokens.weight", {300, 32}}, {prefix + "norm.weight", {32}}, {"lm_head.weight", {300, 32}}};
  for (int i = 0; i < 4; ++i) {
    const std::string layer = prefix + "layers." + std::to_string(i) + ".";
    shapes.insert({{layer + "input_layernorm.weight", {32}},
                   {layer + "post_attention_layernorm.weight", {32}},
                   {layer + "mlp.gate_proj.weight", {48, 32}},
                   {layer + "mlp.up_proj.weight", {48, 32}},
                   {layer + "mlp.down_proj.weight", {32, 48}}});
    if (i == 3) {
      shapes.insert({{layer + "self_attn.q_proj.weight", {128, 32}},
                     {layer + "self_attn.k_proj.weight", {32, 32}},
                     {layer + "self_attn.v_proj.weight", {32, 32}},
                     {layer + "self_attn.o_proj.weight", {32, 64}},
                     {layer + "self_attn.q_norm.weight", {16}},
                     {layer + "self_attn.k_norm.weight", {16}}});
    } else {
      shapes.insert({{layer + "linear_attn.in_proj_qkv.weight", {64, 32}},
                     {layer + "linear_attn.in_proj_z.weight", {32, 32}},
                     {layer + "linear_attn.in_proj_b.weight", {4, 32}},
                     {layer + "linear_attn.in_proj_a.weight", {4, 32}},
                     {layer + "linear_attn.conv1d.weight", {64, 1, 4}},
                     {layer + "linear_attn.A_log", {4}},
                     {layer + "linear_attn.dt_bias", {4}},
                     {layer + "linear_attn.norm.weight", {8}},
                     {layer + "linear_attn.out_proj.weight", {32, 32}}});
    }
  }
  return shapes;
}

Shapes shapes_of(const graph::Graph& graph) {
  Shapes shapes;
  for (const auto& unit : graph.units) {
    for (const auto& parameter : unit.params) {
      if (parameter.tied) continue;
      EXPECT_TRUE(shapes.emplace(parameter.name, parameter.shape).second) << parameter.name;
    }
  }
  return shapes;
}

TEST(Qwen35, HasItsTensors) {
  EXPECT_EQ(shapes_of(build(qwen3_5_text_json())), expected_shapes("model."));
  Shapes nested = expected_shapes("model.language_model.");
  EXPECT_EQ(shapes_of(build(qwen3_5_json())), nested);
  nested.erase("lm_head.weight");
  const graph::Graph tied = build(with(qwen3_5_json(), "tie_word_embeddings", "true"));
  EXPECT_EQ(shapes_of(tied), nested);
  EXPECT_EQ(tied.units.back().params.back().name, "model.language_model.embed_tokens.weight");
  EXPECT_EQ(tied.left_out, (std::vector<std::string>{"model.visual.", "mtp."}));
  EXPECT_EQ(shapes_of(build_published("qwen3.6-27b.json")).size(), 851u);
}

struct Published {
  const char* file;
  int64_t text, full_layer, linear_layer, embedding;
  double matmul_gflop, attention_gflop, scan_gflop;  // of training, a token; attention at 1024 tokens
  int64_t full_bytes, linear_bytes;                  // that backward reads, a token and layer
};

class Qwen35Table : public ::testing::TestWithParam<Published> {};

// Reference: models, "Parameters, Qwen3.5 family" (text column).
TEST_P(Qwen35Table, HasItsParameterCount) {
  const graph::Graph graph = build_published(GetParam().file);
  EXPECT_EQ(graph.parameter_count(), GetParam().text);
  EXPECT_EQ(graph.units.front().parameter_count(), GetParam().embedding);
  for (int i = 1; i <= graph.layers(); ++i) {
    EXPECT_EQ(graph.units[static_cast<size_t>(i)].parameter_count(),
              i % 4 == 0 ? GetParam().full_layer : GetParam().linear_layer);
  }
}

// Reference: models, "Training FLOPs per token". Three forwards are a training step there; ours are compared forward
// to forward, since attention's backward really does 2.5 of them.
TEST_P(Qwen35Table, ForwardFlopsAreAThirdOfTheTables) {
  const graph::Graph graph = build_published(GetParam().file);
  constexpr int64_t kTokens = 1024;
  const graph::Dims dims{kTokens, kTokens, 2};
  std::map<std::string_view, double> gflop;
  for (const auto& unit : graph.units) {
    for (const auto& op : unit.ops) {
      gflop[op.kind->name()] += op.kind->forward_work(dims).flops / 1e9 / static_cast<double>(kTokens);
    }
  }
  EXPECT_NEAR(3 * (gflop["linear"] + gflop["lm_head_loss"]), GetParam().matmul_gflop, 0.002 * GetParam().matmul_gflop);
  EXPECT_NEAR(3 * gflop["attention"], GetParam().attention_gflop, 6e-4);
  EXPECT_NEAR(3 * gflop["gated_delta_net"], GetParam().scan_gflop, 6e-4);
}

// Reference: models, "Activation bytes per token per layer", table (a): all that backward reads, each tensor once, with
// the layer's input (2H).
TEST_P(Qwen35Table, BackwardReadsTheBytesOfTheTable) {
  const graph::Graph graph = build_published(GetParam().file);
  constexpr int64_t kTokens = 64;  // whole cache lines
  const graph::Dims dims{kTokens, kTokens, 2};
  for (int i = 1; i <= graph.layers(); ++i) {
    const graph::Unit& layer = graph.units[static_cast<size_t>(i)];
    const auto set = graph::retained_set(layer, graph::backward_needs(layer), dims);
    EXPECT_EQ(set.bytes, kTokens * ((i % 4 == 0 ? GetParam().full_bytes : GetParam().linear_bytes) - 2 * graph.hidden))
        << layer.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Qwen35Table,
                         ::testing::Values(Published{"qwen3.5-0.8b.json", 752'393'024, 18'352'640, 21'555'360,
                                                     254'279'680, 4.511, 0.075, 0.158, 53'328, 68'968},
                                           Published{"qwen3.5-2b.json", 1'881'825'088, 52'433'408, 58'814'624,
                                                     508'559'360, 11.288, 0.075, 0.158, 76'880, 92'520},
                                           Published{"qwen3.5-4b.json", 4'205'751'296, 107'484'672, 112'923'840,
                                                     635'699'200, 25.229, 0.201, 0.422, 123'032, 137'800},
                                           Published{"qwen3.5-9b.json", 8'953'803'264, 209'723'904, 218'407'104,
                                                     1'017'118'720, 47.614, 0.201, 0.422, 153'752, 168'520},
                                           Published{"qwen3.6-27b.json", 26'895'998'464, 372'255'232, 383'273'184,
                                                     1'271'398'400, 153.732, 0.604, 1.265, 213'208, 230'184}),
                         [](const auto& published) {
                           std::string name = published.param.file;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name;
                         });

// The paper's scheduler counts 23.68 B parameters of Qwen3.6-27B. It does not say how; the count of a dense decoder
// whose query and output projections are square gives it: 2 H² + 2 H Hkv d + 3 H I a layer, and both tables of the
// vocabulary. The same formula gives its 116.54 B of GPT-OSS-120B (gpt_oss_test.cc). Every layer of the real model is
// larger.
TEST(Qwen35, ThePapersCountIsThatOfADenseDecoder) {
  const graph::Graph graph = build_published("qwen3.6-27b.json");
  constexpr int64_t kHidden = 5120, kKv = 4 * 256, kInner = 17408, kVocabulary = 248320;
  const int64_t dense =
      graph.layers() * (2 * kHidden * kHidden + 2 * kHidden * kKv + 3 * kHidden * kInner) + 2 * kVocabulary * kHidden;
  EXPECT_EQ(dense, 23'682'088'960);
  EXPECT_GT(graph.parameter_count(), dense + 3'000'000'000);
  EXPECT_EQ(graph.parameter_count() - 2 * graph.units.front().parameter_count(), 24'353'201'664);
}

std::vector<std::string> wiring(const graph::Unit& layer) {
  std::vector<std::string> lines;
  for (const auto& op : layer.ops) {
    std::string line = layer.values[static_cast<size_t>(op.outputs.front())].name + " <-";
    for (const auto input : op.inputs) line += " " + layer.values[static_cast<size_t>(input)].name;
    lines.push_back(line);
  }
  return lines;
}

TEST(Qwen35, LayersAreWiredAsTheModelSays) {
  const graph::Graph graph = build(qwen3_5_text_json());
  const std::vector<std::string> mlp = {"post_attention_layernorm.out <- mixer_residual.out",
                                        "mlp.gate_proj.out <- post_attention_layernorm.out",
                                        "mlp.up_proj.out <- post_attention_layernorm.out",
                                        "mlp.swiglu.out <- mlp.gate_proj.out mlp.up_proj.out",
                                        "mlp.down_proj.out <- mlp.swiglu.out",
                                        "mlp_residual.out <- mixer_residual.out mlp.down_proj.out"};
  std::vector<std::string> full = {
      "input_layernorm.out <- input",
      "self_attn.q_proj.out <- input_layernorm.out",
      "self_attn.q_split.q <- self_attn.q_proj.out",
      "self_attn.q_norm.out <- self_attn.q_split.q",
      "self_attn.q_rotary.out <- self_attn.q_norm.out",
      "self_attn.k_proj.out <- input_layernorm.out",
      "self_attn.k_norm.out <- self_attn.k_proj.out",
      "self_attn.k_rotary.out <- self_attn.k_norm.out",
      "self_attn.v_proj.out <- input_layernorm.out",
      "self_attn.out <- self_attn.q_rotary.out self_attn.k_rotary.out self_attn.v_proj.out",
      "self_attn.gate.out <- self_attn.out self_attn.q_split.gate",
      "self_attn.o_proj.out <- self_attn.gate.out",
      "mixer_residual.out <- input self_attn.o_proj.out"};
  full.insert(full.end(), mlp.begin(), mlp.end());
  EXPECT_EQ(wiring(graph.units[4]), full);
  std::vector<std::string> linear = {
      "input_layernorm.out <- input",
      "linear_attn.in_proj_qkv.out <- input_layernorm.out",
      "linear_attn.in_proj_z.out <- input_layernorm.out",
      "linear_attn.in_proj_b.out <- input_layernorm.out",
      "linear_attn.in_proj_a.out <- input_layernorm.out",
      "linear_attn.conv1d.out <- linear_attn.in_proj_qkv.out",
      "linear_attn.split.q <- linear_attn.conv1d.out",
      "linear_attn.q_norm.out <- linear_attn.split.q",
      "linear_attn.k_norm.out <- linear_attn.split.k",
      "linear_attn.beta <- linear_attn.in_proj_b.out linear_attn.in_proj_a.out",
      "linear_attn.scan.out <- linear_attn.q_norm.out linear_attn.k_norm.out linear_attn.split.v linear_attn.beta "
      "linear_attn.gamma",
      "linear_attn.norm.out <- linear_attn.scan.out linear_attn.in_proj_z.out",
      "linear_attn.out_proj.out <- linear_attn.norm.out",
      "mixer_residual.out <- input linear_attn.out_proj.out"};
  linear.insert(linear.end(), mlp.begin(), mlp.end());
  EXPECT_EQ(wiring(graph.units[1]), linear);
}

TEST(Qwen35, RunsOnlyRowOpsAgainWhenTheCostlyValuesAreKept) {
  const graph::Graph graph = build(qwen3_5_text_json());
  for (const size_t index : {1, 4}) {
    const graph::Unit& layer = graph.units[index];
    const auto keep = graph::costly_to_recompute(layer);
    for (const int op : graph::recompute_slice(layer, keep)) {
      EXPECT_TRUE(layer.ops[static_cast<size_t>(op)].kind->cheap_to_recompute())
          << layer.ops[static_cast<size_t>(op)].kind->name();
    }
    const graph::Dims dims{64, 32, 2};
    const auto none = graph::retained_set(layer, {}, dims);
    EXPECT_GT(graph::forward_pass(layer, none, dims).workspace_bytes, 0);
    const graph::Pass pass = graph::backward_pass(layer, none, dims, false);
    const graph::Pass kept = graph::backward_pass(layer, graph::retained_set(layer, keep, dims), dims, false);
    EXPECT_LT(kept.recompute_steps, pass.recompute_steps);
  }
}

}  // namespace
}  // namespace lazytrain::model
