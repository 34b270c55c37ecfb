#include "plan/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "graph/testing.h"
#include "plan/exposure.h"
#include "plan/testing.h"

namespace lazytrain::plan {
namespace {

using graph::testing::toy_graph;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A machine on which a toy layer computes for milliseconds and its transfers take a part of that.
hw::Profile machine() {
  hw::Profile profile = testing::tiered_machine();
  profile.gemm_flops = 2e9;
  profile.links = {2e8, 2e8, 3e8, 5e7, 5e7};
  return profile;
}

class PlannerTest : public ::testing::TestWithParam<bool> {
 protected:
  PlanningTask task(const TierGb& budget) const { return {graph, here, {8, 8, 128}, DType::kBF16, "fp32", {}, budget}; }
  // All of a step on the device, but for the state.
  double device_gb(const std::string& policy) const {
    const auto step = step_of(task({10, 10, 0}), named_policy(policy, graph, {8, 8, 128}));
    return static_cast<double>(step.program.tier_bytes[0]) / 1e9;
  }
  graph::Graph graph = toy_graph(8, GetParam());
  hw::Profile here = machine();
};

TEST_P(PlannerTest, FitsItsBudgetsAndTheSimulatorAgrees) {
  for (const double part : {2.0, 1.2, 1.0}) {
    const PlanningTask with = task({part * device_gb("every-layer"), 1, 0});
    const PlannedStep step = plan_step(with, {.solver = "", .time_limit_s = 5}, false);
    EXPECT_TRUE(fits(with, step.program));
    EXPECT_THAT(validate(step.program), ::testing::IsEmpty());
    EXPECT_EQ(step.program.policy.predicted_step_s, step.timeline.step_s);
    EXPECT_GE(step.timeline.step_s, step.program.policy.bound_s * 0.97);
    if (step.objective_s > 0) {
      EXPECT_LE(step.timeline.step_s, step.objective_s * 1.05) << part;
    }
  }
}

TEST_P(PlannerTest, FindsNothingOnceItIsAskedToStop) {
  PlanningTask with = task({1.2 * device_gb("every-layer"), 1, 0});
  std::stop_source source;
  const SolveOptions options{.solver = "", .time_limit_s = 5, .gap = -1, .bound_s = 0, .stop = source.get_token()};
  EXPECT_TRUE(find_step_with_disk(with, options, false));
  source.request_stop();
  EXPECT_FALSE(find_step_with_disk(with, options, false));
}

TEST_P(PlannerTest, IsNoSlowerThanFixedRules) {
  const PlanningTask with = task({1.2 * device_gb("every-layer"), 1, 0});
  const PlannedStep ours = plan_step(with, {.solver = "", .time_limit_s = 5}, true);
  for (const std::string& name : policy_names()) {
    const auto other = named_step(with, name, true);
    if (other) {
      EXPECT_LE(ours.timeline.step_s, 1.01 * other->timeline.step_s) << name;
    }
  }
}

TEST_P(PlannerTest, APartThatIsLeftOutIsNotUsed) {
  here.host_bandwidth = 5e7;  // updates that are worth hiding
  const auto planned = [&](bool retained_sets, bool chase) {
    PlanningTask with = task({2 * device_gb("every-layer"), 1, 0});
    with.retained_sets = retained_sets;
    with.chase = chase;
    return plan_step(with, {.solver = "greedy", .time_limit_s = 0}, false);
  };
  const auto retains = [](const PlannedStep& step) {
    const auto& units = step.program.policy.units;
    return std::any_of(units.begin(), units.end(), [](const UnitPolicy& unit) { return !unit.retained.empty(); });
  };
  const PlannedStep all = planned(true, true), no_sets = planned(false, true), no_chase = planned(true, false);
  EXPECT_TRUE(retains(all));
  EXPECT_FALSE(retains(no_sets));
  EXPECT_FALSE(no_chase.program.policy.update_chases_forward);
  EXPECT_GT(no_sets.timeline.step_s, all.timeline.step_s);
  EXPECT_GT(no_chase.timeline.step_s, all.timeline.step_s);
}

TEST_P(PlannerTest, PutsOnDiskWhatTheHostCannotHold) {
  const auto all = step_of(task({10, 10, 0}), zero3_offload(graph, {8, 8, 128}));  // state and embedded rows
  const double host = static_cast<double>(all.program.tier_bytes[1]) / 1e9;
  const PlanningTask with = task({10, 0.85 * host, 10});
  const PlannedStep step = plan_step(with, {.solver = "greedy", .time_limit_s = 0}, false);
  EXPECT_TRUE(fits(with, step.program));
  EXPECT_GT(step.program.tier_bytes[2], 0);
  EXPECT_THROW(plan_step(task({10, 0.05 * host, 0}), {.solver = "greedy", .time_limit_s = 0}, false), Infeasible);
}

TEST_P(PlannerTest, WhatDoesNotFitSaysWhereAndWhatWould) {
  const PlanningTask with = task({0.05 * device_gb("every-layer"), 10, 0});
  try {
    plan_step(with, {.solver = "greedy", .time_limit_s = 0}, true);
    FAIL() << "fits";
  } catch (const Infeasible& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("batch 8"), HasSubstr("device: "), HasSubstr("short"),
                                    HasSubstr("the model's state is")));
  }
}

std::string refusal(const PlanningTask& task, bool any_micro_batch) {
  try {
    plan_step(task, {.solver = "greedy", .time_limit_s = 0}, any_micro_batch);
  } catch (const Infeasible& error) {
    return error.what();
  }
  return "it fits";
}

// A run's remedies are keys of its configuration; no machine is its own remedy.
TEST_P(PlannerTest, RemediesSpeakTheLanguageOfTheirReader) {
  PlanningTask with = task({0.3 * device_gb("every-layer"), 10, 0});
  with.shape.batch = with.shape.micro_batch = 64;
  const hw::Profile larger = here;
  with.other_machines = [&] {
    return std::vector<OtherMachine>{{"larger", larger, {10, 10, 0}}, {"as small", larger, with.budget}};
  };
  const std::string options = refusal(with, true);
  EXPECT_THAT(options,
              AllOf(HasSubstr("(--batch "), HasSubstr("(--profile larger: device"), Not(HasSubstr("as small"))));
  with.settings = Settings::kKeys;
  const std::string keys = refusal(with, true);
  EXPECT_THAT(keys, AllOf(HasSubstr("(batch="), HasSubstr("(device.profile=larger: device"), Not(HasSubstr("--"))));
  // The micro-batch is the person's: where a change needs another one, it says so.
  EXPECT_THAT(refusal(with, false), HasSubstr("micro_batch="));
  with.other_machines = {};
  for (const hw::Profile& machine : hw::library_profiles()) {
    here.name = machine.name;
    EXPECT_THAT(refusal(with, true), Not(HasSubstr(fmt::format("={}:", machine.name))));
  }
}

// Where the host is what limits, it works while backward runs, and forward has less to wait for.
TEST_P(PlannerTest, WithoutClippingUpdatesGoIntoBackward) {
  graph = toy_graph(8, GetParam(), 200);  // layers whose state finds no home on the device
  here.host_bandwidth = 5e7;
  PlanningTask with = task({10, 10, 0});
  with.shape = {2, 2, 128};
  const PlannedStep fixed = step_of(with, named_policy("every-layer", graph, with.shape));
  with.budget.device = 1.02 * static_cast<double>(fixed.program.tier_bytes[0]) / 1e9;
  const PlannedStep clipped = plan_step(with, {.solver = "greedy", .time_limit_s = 0}, false);
  with.update_in_backward = true;
  const PlannedStep step = plan_step(with, {.solver = "greedy", .time_limit_s = 0}, false);
  EXPECT_FALSE(clipped.program.policy.update_in_backward);
  EXPECT_TRUE(step.program.policy.update_in_backward);
  EXPECT_THAT(validate(step.program), ::testing::IsEmpty());
  EXPECT_LT(step.timeline.step_s, 0.95 * clipped.timeline.step_s);
}

// A link that is the only thing in the way is named, and doubling it helps.
TEST_P(PlannerTest, ExposureNamesTheSlowLink) {
  here.links.d2h = 2e6;
  here.links.joint = 2.1e8;
  const PlannedStep step = step_of(task({10, 10, 0}), every_layer(graph, {8, 8, 128}));
  const auto waits = exposures(step.program, graph, step.timeline, here);
  ASSERT_FALSE(waits.empty());
  EXPECT_EQ(waits.front().lane, Lane::kD2H);
  EXPECT_GT(waits.front().saved_s, 0.05 * step.timeline.step_s);
  double sum = 0;
  for (const Exposure& e : waits) sum += e.seconds;
  EXPECT_NEAR(sum, summarize(step.program, step.timeline).exposed_s, 0.01 * step.timeline.step_s);
}

INSTANTIATE_TEST_SUITE_P(Tied, PlannerTest, ::testing::Bool());

}  // namespace
}  // namespace lazytrain::plan
