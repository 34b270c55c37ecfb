#include "model/gpt_oss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "graph/pass.h"
#include "model/config_testing.h"
#include "model/family.h"

namespace lazytrain::model {
namespace {

using testing::gpt_oss_json;
using Shapes = std::map<std::string, std::vector<int64_t>>;

graph::Graph published() {
  const ModelConfig config = load_config(std::filesystem::path(LAZYTRAIN_SOURCE_DIR) / "configs" / "gpt-oss-120b.json");
  EXPECT_THAT(config.warnings, ::testing::IsEmpty());
  return build_graph(config);
}

// As transformers 5.24 names and shapes the parameters of GptOssForCausalLM with this configuration.
TEST(GptOss, HasItsTensors) {
  Shapes expected = {
      {"model.embed_tokens.weight", {300, 32}}, {"model.norm.weight", {32}}, {"lm_head.weight", {300, 32}}};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    expected.insert({{layer + "input_layernorm.weight", {32}},
                     {layer + "post_attention_layernorm.weight", {32}},
                     {layer + "self_attn.sinks", {4}},
                     {layer + "self_attn.q_proj.weight", {64, 32}},
                     {layer + "self_attn.q_proj.bias", {64}},
                     {layer + "self_attn.k_proj.weight", {32, 32}},
                     {layer + "self_attn.k_proj.bias", {32}},
                     {layer + "self_attn.v_proj.weight", {32, 32}},
                     {layer + "self_attn.v_proj.bias", {32}},
                     {layer + "self_attn.o_proj.weight", {32, 64}},
                     {layer + "self_attn.o_proj.bias", {32}},
                     {layer + "mlp.router.weight", {6, 32}},
                     {layer + "mlp.router.bias", {6}},
                     {layer + "mlp.experts.gate_up_proj", {6, 32, 96}},
                     {layer + "mlp.experts.gate_up_proj_bias", {6, 96}},
                     {layer + "mlp.experts.down_proj", {6, 48, 32}},
                     {layer + "mlp.experts.down_proj_bias", {6, 32}}});
  }
  Shapes found;
  for (const auto& unit : build_graph(parse_config(gpt_oss_json(), "config.json")).units) {
    for (const auto& parameter : unit.params) found.emplace(parameter.name, parameter.shape);
  }
  EXPECT_EQ(found, expected);
}

TEST(GptOss, HasItsParameterCount) {
  const graph::Graph graph = published();
  EXPECT_EQ(graph.parameter_count(), 116'829'156'672);  // published: 116.83 B
  // A token goes through 4 of 128 experts; published: 5.13 B active, with the 0.58 B of the embedding that we leave
  // out.
  EXPECT_NEAR(static_cast<double>(graph.matmul_parameters()), 5.13e9, 1e7);
}

// The paper's scheduler counts 116.54 B: the dense formula of qwen3_5_test.cc with 128 MLPs and the router's matrix a
// layer, no biases and sinks.
TEST(GptOss, ThePapersCountIsThatOfADenseDecoder) {
  const graph::Graph graph = published();
  constexpr int64_t kHidden = 2880, kKv = 8 * 64, kInner = 2880, kExperts = 128, kVocabulary = 201088;
  const int64_t dense = graph.layers() * (2 * kHidden * kHidden + 2 * kHidden * kKv + kExperts * 3 * kHidden * kInner +
                                          kExperts * kHidden) +
                        2 * kVocabulary * kHidden;
  EXPECT_EQ(dense, 116'536'688'640);
  EXPECT_GT(graph.parameter_count(), dense);
}

TEST(GptOss, WindowsCostLessThanTheWholeContext) {
  const graph::Graph graph = published();
  const graph::Dims dims{4096, 4096, 2};
  const auto attention_flops = [&](size_t layer) {
    for (const auto& op : graph.units[layer].ops) {
      if (op.kind->name() == "sink_attention") return op.kind->forward_work(dims).flops;
    }
    return 0.0;
  };
  // 64 heads of 64; a token attends to 2048 tokens in the mean, or to 128 but for the first 128 tokens.
  EXPECT_DOUBLE_EQ(attention_flops(2), 4.0 * 4096 * 4096 * 2048);
  EXPECT_DOUBLE_EQ(attention_flops(1), 4.0 * 4096 * 4096 * 126);
}

TEST(GptOss, BackwardReadsWhatItMust) {
  const graph::Graph graph = published();
  const graph::Unit& layer = graph.units[1];
  constexpr int64_t kTokens = 64;
  const graph::Dims dims{kTokens, kTokens, 2};
  const auto set = graph::retained_set(layer, graph::backward_needs(layer), dims);
  // norm1 out, residual, norm2 out; q, k, v, attention's out; 4 experts' gate, up and product; log-sum-exp, two 1/rms,
  // scores and numbers of 4 experts. The layer's input is a boundary.
  EXPECT_EQ(set.bytes, kTokens * (2 * (3 * 2880 + 4096 + 2 * 512 + 4096 + 4 * 3 * 2880) + 4 * (64 + 2 + 4 + 4)));
  const graph::Pass pass = graph::backward_pass(layer, graph::retained_set(layer, {}, dims), dims, false);
  const int last = layer.producer(graph::values_by_name(layer, {"mlp.experts.down_proj"})[0]);
  EXPECT_THAT(graph::recompute_slice(layer, {}), ::testing::Not(::testing::Contains(last)));
  EXPECT_GT(pass.workspace_bytes, 0);
}

}  // namespace
}  // namespace lazytrain::model
