#include "plan/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/testing.h"
#include "plan/describe.h"
#include "plan/heuristics.h"
#include "plan/timeline.h"

namespace lazytrain::plan {
namespace {

using graph::testing::toy_graph;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

hw::Profile machine() {
  hw::Profile profile;
  profile.name = "toy";
  profile.one_memory = true;
  profile.gemm_flops = 1e9;
  profile.memory_bandwidth = 1e8;
  profile.host_bandwidth = 5e7;
  return profile;
}

class BudgetTest : public ::testing::Test {
 protected:
  std::string refusal(const Policy& policy, const Budgets& budgets) const {
    try {
      check_budgets(graph, compile(graph, policy, {}), {}, machine(), budgets);
    } catch (const Infeasible& error) {
      return error.what();
    }
    return "fits";
  }
  int64_t device(const Policy& policy) const { return compile(graph, policy, {}).tier_bytes[0]; }
  int64_t host(const Policy& policy) const { return compile(graph, policy, {}).tier_bytes[1]; }

  graph::Graph graph = toy_graph(12, true);
  Shape shape{8, 8, 64};
};

TEST_F(BudgetTest, ADiskInMemoryIsMemory) {
  const Policy policy = resident(graph, shape);
  Program program = compile(graph, policy, {});
  program.tier_bytes[2] = 7;
  const int64_t all = program.tier_bytes[0] + program.tier_bytes[1];
  EXPECT_TRUE(fits(program, {.host = all, .available = all}));
  EXPECT_FALSE(fits(program, {.available = all + 6, .disk_in_memory = true}));
  EXPECT_FALSE(fits(program, {.host = all + 6, .disk_in_memory = true}));
  EXPECT_TRUE(fits(program, {.host = all + 7, .available = all + 7, .disk_in_memory = true}));
}

TEST_F(BudgetTest, ExactlyEnoughFitsAndOneByteLessDoesNot) {
  const Policy policy = resident(graph, shape);
  const int64_t d = device(policy), h = host(policy);
  EXPECT_EQ(refusal(policy, {.device = d, .host = d + h + 5, .available = d + h + 5, .evaluation = 2, .process = 3}),
            "fits");
  EXPECT_EQ(refusal(policy, {}), "fits");  // no limits
  EXPECT_THAT(refusal(policy, {.device = d - 1}),
              AllOf(HasSubstr("device:"), HasSubstr("1 B short"), Not(HasSubstr("host:"))));
  EXPECT_THAT(refusal(policy, {.host = d + h - 1}),
              AllOf(HasSubstr("host:"), HasSubstr("optimizer state"), Not(HasSubstr("device:"))));
  EXPECT_THAT(refusal(policy, {.available = d + h + 4, .evaluation = 5}),
              AllOf(HasSubstr("one memory"), HasSubstr("evaluation 5 B")));
}

// A remedy is a claim: take it, compile it, and it fits.
TEST_F(BudgetTest, RemediesFit) {
  const Policy policy = resident(graph, shape);
  Policy half = policy;
  half.micro_batch = 4;
  const Budgets budgets{.device = device(half)};
  const std::string text = refusal(policy, budgets);
  EXPECT_THAT(text, AllOf(HasSubstr("Any of these fits"), HasSubstr("micro_batch=4"), Not(HasSubstr("micro_batch=2"))));
  EXPECT_TRUE(fits(compile(graph, half, {}), budgets));
  Policy one_less = policy;
  one_less.micro_batch = 8;
  EXPECT_FALSE(fits(compile(graph, one_less, {}), budgets));
}

TEST_F(BudgetTest, AnotherPolicyIsARemedyWithItsTime) {
  const Policy policy = resident(graph, {1, 1, 64});
  const Policy streamed = megatrain(graph, {1, 1, 64});
  ASSERT_LT(device(streamed), device(policy));
  EXPECT_THAT(refusal(policy, {.device = device(streamed)}),
              AllOf(HasSubstr("plan.policy=megatrain"), HasSubstr("time a token")));
}

TEST_F(BudgetTest, StateThatNoPolicyMakesSmallerHasNoRemedy) {
  const std::string text = refusal(resident(graph, shape), {.host = 1000});
  EXPECT_THAT(text, AllOf(HasSubstr("the nearest lacks"), Not(HasSubstr("Any of these fits"))));
}

TEST_F(BudgetTest, DescriptionShowsPlacementMemoryAndFigures) {
  const Program program = compile(graph, megatrain(graph, shape), {});
  const Timeline timeline = simulate(program, CostTable(graph, program, machine()));
  const std::string text =
      describe(program, graph, timeline, machine(), {.device = 1 << 30, .host = 0, .available = 0});
  EXPECT_THAT(text, HasSubstr("hBrrrBrrrBrrrL"));  // a checkpoint every four layers
  EXPECT_THAT(text, AllOf(HasSubstr("of 1.07 GB allowed"), HasSubstr("optimizer state"), HasSubstr("exposed"),
                          HasSubstr("6 N tokens/s")));
  const Figures figures = figures_of(program, graph, timeline);
  EXPECT_DOUBLE_EQ(figures.tok_per_s * figures.step_s, 8 * 64);
  const Json json = to_json(figures);
  EXPECT_EQ(json.at("peak_bytes").at("device"), program.tier_bytes[0]);
  EXPECT_GT(json.at("lanes").at("compute").at("busy_s"), 0);
  EXPECT_FALSE(json.at("lanes").contains("disk_read"));
}

}  // namespace
}  // namespace lazytrain::plan
