#include "plan/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/testing.h"
#include "plan/testing.h"

namespace lazytrain::plan {
namespace {

using graph::testing::toy_graph;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Policy, JsonRoundTrip) {
  const graph::Graph graph = toy_graph(5, true);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Policy policy = testing::random_policy(graph, {7, 3, 11}, seed);
    policy.solver = "some solver";
    policy.predicted_step_s = 0.1 + static_cast<double>(seed) / 3;
    policy.bound_s = 1e-9 / 3;
    policy.gap = 1.0 / 7;
    EXPECT_EQ(policy_from_json(to_json(policy), "plan.json"), policy);
    EXPECT_EQ(policy_from_json(parse_json(to_json(policy).dump(2), "plan.json"), "plan.json"), policy);
    policy = testing::with_early_updates(policy, seed);
    policy.made_for = {facts_of(graph), facts_of(testing::tiered_machine())};
    EXPECT_EQ(policy_from_json(to_json(policy), "plan.json"), policy);
  }
}

TEST(Policy, OptionalKeysHaveDefaults) {
  const graph::Graph graph = toy_graph(2, false);
  Json json = to_json(megatrain(graph, {2, 1, 4}));
  for (const char* key : {"recompute_whole_unit", "recompute_whole_block", "weight_slots", "gradient_buffers",
                          "update_in_backward", "solver", "predicted_step_s", "bound_s", "gap"}) {
    json.erase(key);
  }
  const Policy policy = policy_from_json(json, "plan.json");
  EXPECT_FALSE(policy.recompute_whole_unit);
  EXPECT_EQ(policy.weight_slots, 2);
  EXPECT_EQ(policy.gradient_buffers, 2);
  EXPECT_EQ(policy.solver, "none");
  EXPECT_FALSE(policy.update_in_backward);
  json["update_in_backward"] = true;
  EXPECT_EQ(policy_from_json(json, "plan.json").units[1].early_update, 1);
}

// A mistake in a plan edited by hand, and what the message must name besides the file.
struct Mistake {
  const char* pointer;  // where
  const char* value;    // JSON text, "" to erase
  const char* expected;
};

class MistakeTest : public ::testing::TestWithParam<Mistake> {};

TEST_P(MistakeTest, IsNamed) {
  const Mistake& mistake = GetParam();
  Json json = to_json(resident(toy_graph(2, false), {4, 2, 8}));
  const Json::json_pointer at(mistake.pointer);
  if (std::string(mistake.value).empty()) {
    json.at(at.parent_pointer()).erase(at.back());
  } else {
    json[at] = parse_json(mistake.value, "value");
  }
  try {
    policy_from_json(json, "plan.json");
    FAIL() << "accepted " << mistake.pointer << " = " << mistake.value;
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("plan.json"), HasSubstr(mistake.expected)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, MistakeTest,
    ::testing::Values(
        Mistake{"/format", "2", "format 2"}, Mistake{"/format", "", "format"}, Mistake{"/name", "7", "name"},
        Mistake{"/model", "", "model"}, Mistake{"/batch", "0", "batch"}, Mistake{"/batch", "\"4\"", "batch"},
        Mistake{"/batch", "4.5", "batch"}, Mistake{"/batch", "99999999999", "batch"},
        Mistake{"/micro_batch", "5", "micro_batch"}, Mistake{"/micro_batch", "", "micro_batch"},
        Mistake{"/seq", "-8", "seq"},
        Mistake{"/seq", "1073741824", "seq"},  // times micro_batch: more tokens than can be numbered
        Mistake{"/weight_slots", "0", "weight_slots"}, Mistake{"/gradient_buffers", "1000", "gradient_buffers"},
        Mistake{"/recompute_whole_unit", "1", "recompute_whole_unit"}, Mistake{"/boundaries", "", "boundaries"},
        Mistake{"/boundaries", "{}", "boundaries"}, Mistake{"/boundaries/1", "true", "boundaries[1]"},
        Mistake{"/boundaries/1/home", "\"gpu\"", "gpu"}, Mistake{"/boundaries/1/home", "", "home"},
        Mistake{"/boundaries/1/checkpoint", "\"yes\"", "checkpoint"}, Mistake{"/units", "null", "units"},
        Mistake{"/units/2/retained", "\"q.out\"", "retained"}, Mistake{"/units/2/retained/0", "3", "units[2]"},
        Mistake{"/units/2/weight_home", "\"ram\"", "device, host, disk"},
        Mistake{"/weigth_slots", "3", "weight_slots"},  // a key that would be read as nothing
        Mistake{"/made_for", "{\"modle\": 1}", "model"}, Mistake{"/made_for", "{\"model\": {}}", "family"},
        Mistake{"/made_for", "{\"machine\": {\"name\": 3}}", "name"}, Mistake{"/made_for", "3", "made_for"},
        Mistake{"/update_in_backward", "1", "update_in_backward"},
        Mistake{"/units/2/early_update", "0.5", "says nothing without \"update_in_backward\""},
        Mistake{"/boundaries/1/checkpont", "false", "checkpoint"}, Mistake{"/units/2/retain", "[]", "retained"}));

TEST(Policy, SaysWhatDoesNotFitTheModel) {
  const graph::Graph graph = toy_graph(2, false);
  const Policy good = resident(graph, {4, 2, 8});
  EXPECT_NO_THROW(check_against(good, graph));
  const auto message = [&](const Policy& policy, const graph::Graph& model) -> std::string {
    try {
      check_against(policy, model);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message(good, toy_graph(3, false)), AllOf(HasSubstr("toy-2"), HasSubstr("toy-3")));
  Policy policy = good;
  policy.made_for.model = facts_of(graph);
  EXPECT_THAT(message(policy, toy_graph(3, true)),
              AllOf(HasSubstr("layers 2 in the plan, 3 here"), HasSubstr("tied head false in the plan, true here"),
                    HasSubstr("parameters "), Not(HasSubstr("hidden")), Not(HasSubstr("toy-2"))));
  graph::Graph other = toy_graph(2, false);
  other.fingerprint = "other";
  EXPECT_THAT(message(policy, other), AllOf(HasSubstr("other keys of config.json"), HasSubstr("toy-2")));
  EXPECT_THROW(check_against(good, other, "plan.json"), UsageError);
  policy = good;
  policy.units.pop_back();
  EXPECT_THAT(message(policy, graph), AllOf(HasSubstr("3 units"), HasSubstr("4")));
  policy = good;
  policy.boundaries.clear();
  EXPECT_THAT(message(policy, graph), HasSubstr("0 boundaries"));
  policy = good;
  policy.boundaries.back().checkpoint = false;
  EXPECT_THAT(message(policy, graph), HasSubstr("last boundary"));
}

TEST(Heuristics, UnknownNameSuggestsTheNearest) {
  const graph::Graph graph = toy_graph(2, false);
  try {
    named_policy("megatrian", graph, {1, 1, 1});
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean megatrain"));
  }
}

TEST(Heuristics, MegaTrainKeepsEveryFourthBoundaryAndTheLast) {
  const Policy policy = megatrain(toy_graph(9, false), {1, 1, 1});
  std::vector<size_t> checkpoints;
  for (size_t b = 0; b < policy.boundaries.size(); ++b) {
    if (policy.boundaries[b].checkpoint) checkpoints.push_back(b);
  }
  EXPECT_THAT(checkpoints, ::testing::ElementsAre(0, 4, 8, 9));
}

}  // namespace
}  // namespace lazytrain::plan
