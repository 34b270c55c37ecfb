// What the passes of graph/ derive from the ops of the real families.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/rng.h"
#include "graph/pass.h"
#include "model/config_testing.h"
#include "model/family.h"

namespace lazytrain::model {
namespace {

using ::testing::UnorderedElementsAreArray;

std::vector<std::string> names(const graph::Unit& unit, const std::vector<graph::ValueId>& ids) {
  std::vector<std::string> result;
  for (const auto id : ids) result.push_back(unit.values[static_cast<size_t>(id)].name);
  return result;
}

struct Published {
  const char* file;
  int64_t bytes;  // a token and layer, with the layer's input
  int64_t all;    // likewise, norm outputs and the SwiGLU product kept too
};

class ActivationBytesTest : public ::testing::TestWithParam<Published> {};

// The table of activation bytes a token and layer, dense, with norm outputs and the SwiGLU product recomputed
// (reference: models): 2 (2H + (Hq + 2 Hkv) d + Hq d + 2I) + 4 Hq + 8. The boundary, 2H, is counted apart here; the
// last 8 are two reciprocal RMS, which the norms bring back as well when they are run again.
TEST_P(ActivationBytesTest, AreThoseOfTheTable) {
  const auto path = std::filesystem::path(LAZYTRAIN_SOURCE_DIR) / "configs" / GetParam().file;
  const ModelConfig config = load_config(path);
  const graph::Graph graph = build_graph(config);
  constexpr int64_t kTokens = 64;  // whole cache lines
  const graph::Dims dims{kTokens, kTokens, 2};
  for (int i = 1; i <= graph.layers(); ++i) {
    const graph::Unit& layer = graph.units[static_cast<size_t>(i)];
    const auto set = graph::retained_set(layer, graph::costly_to_recompute(layer), dims);
    EXPECT_EQ(set.bytes, kTokens * (GetParam().bytes - 2 * config.hidden - 8)) << layer.name;
  }
}

// The same table with everything kept that backward reads: 2 (4H + (Hq + 2 Hkv) d + Hq d + 3I) + 4 Hq + 8.
TEST_P(ActivationBytesTest, OfAllThatBackwardReadsAreThoseOfTheTable) {
  const ModelConfig config = load_config(std::filesystem::path(LAZYTRAIN_SOURCE_DIR) / "configs" / GetParam().file);
  const graph::Unit layer = build_graph(config).units.at(1);
  constexpr int64_t kTokens = 64;
  const auto set = graph::retained_set(layer, graph::backward_needs(layer), {kTokens, kTokens, 2});
  EXPECT_EQ(set.bytes, kTokens * (GetParam().all - 2 * config.hidden));
}

INSTANTIATE_TEST_SUITE_P(
    Qwen25, ActivationBytesTest,
    ::testing::Values(Published{"qwen2.5-0.5b.json", 27'200, 40'512}, Published{"qwen2.5-1.5b.json", 49'208, 73'272},
                      Published{"qwen2.5-3b.json", 61'512, 91'720}, Published{"qwen2.5-7b.json", 106'616, 158'840},
                      Published{"qwen2.5-14b.json", 100'520, 148'648}, Published{"qwen2.5-32b.json", 155'816, 231'592}),
    [](const auto& published) {
      std::string name = published.param.file;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
      return name;
    });

TEST(CostlyToRecompute, IsWhatGemmsAndAttentionMake) {
  for (const Json& json : {testing::qwen2_json(), testing::llama_json()}) {
    const graph::Unit layer = build_graph(parse_config(json, "config.json")).units.at(1);
    EXPECT_THAT(names(layer, graph::costly_to_recompute(layer)),
                UnorderedElementsAreArray({"self_attn.q_proj.out", "self_attn.k_proj.out", "self_attn.v_proj.out",
                                           "self_attn.out", "self_attn.lse", "self_attn.o_proj.out",
                                           "mlp.gate_proj.out", "mlp.up_proj.out"}));
  }
}

TEST(RecomputeSlice, LeavesOutTheLastGemmWhateverIsKept) {
  for (const Json& json : {testing::qwen2_json(), testing::llama_json()}) {
    const graph::Unit layer = build_graph(parse_config(json, "config.json")).units.at(1);
    const int down = layer.producer(graph::values_by_name(layer, {"mlp.down_proj.out"})[0]);
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const CounterRng rng(seed, 0);
      std::vector<graph::ValueId> retained;
      for (size_t v = 0; v < layer.values.size(); ++v) {
        if (rng.uniform(v) < rng.uniform(1000)) retained.push_back(static_cast<graph::ValueId>(v));
      }
      EXPECT_THAT(graph::recompute_slice(layer, retained), ::testing::Not(::testing::Contains(down)));
    }
    EXPECT_EQ(graph::recompute_slice(layer, {}).size(), layer.ops.size() - 2);
    EXPECT_THAT(graph::recompute_slice(layer, graph::backward_needs(layer)), ::testing::IsEmpty());
  }
}

}  // namespace
}  // namespace lazytrain::model
