#include "model/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "model/config_testing.h"

namespace lazytrain::model {
namespace {

using ::testing::ElementsAre;
using testing::llama_json;
using testing::mistral_json;
using testing::qwen2_json;
using testing::with;
using Shapes = std::map<std::string, std::vector<int64_t>>;

graph::Graph build(const Json& json) { return build_graph(parse_config(json, "config.json")); }

// Names and shapes of what lies in the model's files.
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

TEST(Family, Qwen2HasItsTensors) {
  Shapes expected = {{"model.embed_tokens.weight", {300, 56}}, {"model.norm.weight", {56}}};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    expected.insert({{layer + "input_layernorm.weight", {56}},
                     {layer + "self_attn.q_proj.weight", {56, 56}},
                     {layer + "self_attn.q_proj.bias", {56}},
                     {layer + "self_attn.k_proj.weight", {8, 56}},
                     {layer + "self_attn.k_proj.bias", {8}},
                     {layer + "self_attn.v_proj.weight", {8, 56}},
                     {layer + "self_attn.v_proj.bias", {8}},
                     {layer + "self_attn.o_proj.weight", {56, 56}},
                     {layer + "post_attention_layernorm.weight", {56}},
                     {layer + "mlp.gate_proj.weight", {96, 56}},
                     {layer + "mlp.up_proj.weight", {96, 56}},
                     {layer + "mlp.down_proj.weight", {56, 96}}});
  }
  EXPECT_EQ(shapes_of(build(qwen2_json())), expected);
  expected["lm_head.weight"] = {300, 56};
  EXPECT_EQ(shapes_of(build(with(qwen2_json(), "tie_word_embeddings", "false"))), expected);
}

TEST(Family, LlamaHasItsTensors) {
  Shapes expected = {
      {"model.embed_tokens.weight", {300, 48}}, {"model.norm.weight", {48}}, {"lm_head.weight", {300, 48}}};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    expected.insert({{layer + "input_layernorm.weight", {48}},
                     {layer + "self_attn.q_proj.weight", {64, 48}},
                     {layer + "self_attn.k_proj.weight", {32, 48}},
                     {layer + "self_attn.v_proj.weight", {32, 48}},
                     {layer + "self_attn.o_proj.weight", {48, 64}},
                     {layer + "post_attention_layernorm.weight", {48}},
                     {layer + "mlp.gate_proj.weight", {96, 48}},
                     {layer + "mlp.up_proj.weight", {96, 48}},
                     {layer + "mlp.down_proj.weight", {48, 96}}});
  }
  EXPECT_EQ(shapes_of(build(llama_json())), expected);
  EXPECT_EQ(shapes_of(build(mistral_json())), expected);
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    expected.insert({{layer + "self_attn.q_proj.bias", {64}},
                     {layer + "self_attn.k_proj.bias", {32}},
                     {layer + "self_attn.v_proj.bias", {32}},
                     {layer + "self_attn.o_proj.bias", {48}}});
  }
  EXPECT_EQ(shapes_of(build(with(llama_json(), "attention_bias", "true"))), expected);
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    expected.insert({{layer + "mlp.gate_proj.bias", {96}},
                     {layer + "mlp.up_proj.bias", {96}},
                     {layer + "mlp.down_proj.bias", {48}}});
  }
  EXPECT_EQ(shapes_of(build(with(with(llama_json(), "attention_bias", "true"), "mlp_bias", "true"))), expected);
}

struct Published {
  const char* file;
  int64_t total;
  int64_t layers_and_norm;  // without embedding and head
  int64_t layer;
  int64_t in_matmuls;  // 0: not published
};

class PublishedModel : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedModel, HasItsParameterCount) {
  const Published& published = GetParam();
  const auto path = std::filesystem::path(LAZYTRAIN_SOURCE_DIR) / "configs" / published.file;
  const ModelConfig config = load_config(path);
  EXPECT_THAT(config.warnings, ::testing::IsEmpty());
  const graph::Graph graph = build_graph(config);
  EXPECT_EQ(graph.parameter_count(), published.total);
  const int64_t matrix = graph.units.front().parameter_count();
  EXPECT_EQ(graph.parameter_count() - matrix * (graph.tied ? 1 : 2), published.layers_and_norm);
  for (int i = 1; i <= graph.layers(); ++i)
    EXPECT_EQ(graph.units[static_cast<size_t>(i)].parameter_count(), published.layer);
  if (published.in_matmuls == 0) return;
  int64_t vectors = 0;
  for (const auto& unit : graph.units) {
    for (const auto& parameter : unit.params) vectors += parameter.decays() ? 0 : parameter.elements;
  }
  EXPECT_EQ(graph.matmul_parameters() - vectors, published.in_matmuls);
}

// From the tables that the model cards and weight indices give (Qwen2.5: models, parameter counts).
INSTANTIATE_TEST_SUITE_P(
    All, PublishedModel,
    ::testing::Values(Published{"qwen2.5-0.5b.json", 494'032'768, 357'898'112, 14'912'384, 493'961'216},
                      Published{"qwen2.5-1.5b.json", 1'543'714'304, 1'310'340'608, 46'797'824, 1'543'569'408},
                      Published{"qwen2.5-3b.json", 3'085'938'688, 2'774'773'760, 77'076'992, 3'085'697'024},
                      Published{"qwen2.5-7b.json", 7'615'616'512, 6'525'621'760, 233'057'792, 7'070'285'824},
                      Published{"qwen2.5-14b.json", 14'770'033'664, 13'212'898'304, 275'268'608, 13'990'625'280},
                      Published{"qwen2.5-32b.json", 32'763'876'352, 31'206'740'992, 487'605'248, 31'984'189'440},
                      Published{"qwen2.5-72b.json", 72'706'203'648, 70'214'787'072, 877'684'736, 0},
                      Published{"smollm2-135m.json", 134'515'008, 106'203'456, 3'540'096, 0},
                      Published{"smollm2-360m.json", 361'821'120, 314'635'200, 9'832'320, 0},
                      Published{"smollm2-1.7b.json", 1'711'376'384, 1'610'713'088, 67'112'960, 0},
                      Published{"llama-3.2-3b.json", 3'212'749'824, 2'818'747'392, 100'669'440, 0},
                      Published{"llama-3.1-70b.json", 70'553'706'496, 68'452'360'192, 855'654'400, 0},
                      Published{"llama-3.2-1b.json", 1'235'814'400, 973'146'112, 60'821'504, 0},
                      Published{"llama-3.1-8b.json", 8'030'261'248, 6'979'588'096, 218'112'000, 0}),
    [](const auto& published) {
      std::string name = published.param.file;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
      return name;
    });

TEST(Family, GraphIsWellFormed) {
  const graph::Graph graph = build(qwen2_json());
  EXPECT_EQ(graph.family, "qwen2");
  EXPECT_EQ(graph.layers(), 2);
  EXPECT_EQ(graph.max_positions, 128);
  EXPECT_TRUE(graph.tied);
  EXPECT_EQ(build(mistral_json()).family, "llama");
  for (const auto& unit : graph.units) {
    EXPECT_EQ(unit.input >= 0, unit.kind != graph::UnitKind::kEmbedding);
    EXPECT_EQ(unit.output >= 0, unit.kind != graph::UnitKind::kHead);
    graph::ValueId next = unit.input >= 0 ? 1 : 0;  // SSA: inputs stand before outputs, outputs are new and in order
    for (const auto& op : unit.ops) {
      for (const auto input : op.inputs) EXPECT_LT(input, next) << unit.name;
      for (const auto output : op.outputs) EXPECT_EQ(output, next++) << unit.name;
    }
    EXPECT_EQ(static_cast<size_t>(next), unit.values.size());
    if (unit.output < 0) continue;
    EXPECT_EQ(unit.values[static_cast<size_t>(unit.output)].width, graph.hidden);
  }
  const graph::Unit& head = graph.units.back();
  ASSERT_EQ(head.params.size(), 2u);
  EXPECT_TRUE(head.params[1].tied);
  EXPECT_THAT(head.params[1].shape, ElementsAre(300, 56));
}

// Who reads what in a layer, by the names of the values: a swapped input would leave all shapes as they are.
TEST(Family, LayerIsWiredAsTheModelSays) {
  const graph::Unit layer = build(qwen2_json()).units.at(1);
  std::vector<std::string> lines;
  for (const auto& op : layer.ops) {
    std::string line = layer.values[static_cast<size_t>(op.outputs.front())].name + " <-";
    for (const auto input : op.inputs) line += " " + layer.values[static_cast<size_t>(input)].name;
    lines.push_back(line);
  }
  EXPECT_THAT(
      lines,
      ElementsAre(
          "input_layernorm.out <- input", "self_attn.q_proj.out <- input_layernorm.out",
          "self_attn.k_proj.out <- input_layernorm.out", "self_attn.v_proj.out <- input_layernorm.out",
          "self_attn.q_rotary.out <- self_attn.q_proj.out", "self_attn.k_rotary.out <- self_attn.k_proj.out",
          "self_attn.out <- self_attn.q_rotary.out self_attn.k_rotary.out self_attn.v_proj.out",
          "self_attn.o_proj.out <- self_attn.out", "attn_residual.out <- input self_attn.o_proj.out",
          "post_attention_layernorm.out <- attn_residual.out", "mlp.gate_proj.out <- post_attention_layernorm.out",
          "mlp.up_proj.out <- post_attention_layernorm.out", "mlp.swiglu.out <- mlp.gate_proj.out mlp.up_proj.out",
          "mlp.down_proj.out <- mlp.swiglu.out", "mlp_residual.out <- attn_residual.out mlp.down_proj.out"));
  EXPECT_EQ(layer.values[static_cast<size_t>(layer.output)].name, "mlp_residual.out");
}

}  // namespace
}  // namespace lazytrain::model
