#include "plan/measured.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/testing.h"
#include "plan/planner.h"
#include "plan/testing.h"

namespace lazytrain::plan {
namespace {

using graph::testing::toy_graph;
using ::testing::HasSubstr;

hw::Profile nominal() {
  hw::Profile profile = testing::tiered_machine();
  profile.gemm_flops = 2e9;
  profile.links = {2e8, 2e8, 3e8, 5e7, 5e7};
  return profile;
}

// What the machine really does: slower products and links than its profile says, a faster optimizer.
hw::Profile actual() {
  hw::Profile profile = nominal();
  profile.gemm_flops /= 1.4;
  profile.memory_bandwidth /= 1.4;
  profile.launch_s *= 1.4;
  profile.host_bandwidth *= 1.25;
  profile.links.h2d /= 1.2;
  profile.links.d2h /= 1.2;
  profile.links.joint /= 1.2;
  profile.links.disk_read /= 2;
  profile.links.disk_write /= 2;
  return profile;
}

class MeasuredTest : public ::testing::Test {
 protected:
  PlanningTask task(const hw::Profile& machine) const {
    return {graph, machine, {8, 4, 128}, DType::kBF16, "fp32", {}, {10, 10, 10}};
  }
  // Steps of two policies, as the actual machine runs them.
  Measurements measured() const {
    Measurements sum;
    for (const std::string name : {"every-layer", "megatrain"}) {
      Policy policy = named_policy(name, graph, {8, 4, 128});
      policy.boundaries[1].home = Tier::kDisk;
      const Program program = step_of(task(there), policy).program;
      const Timeline timeline = simulate(program, CostTable(graph, program, there));
      sum.add(graph, program, CostTable(graph, program, here), timeline);
    }
    return sum;
  }
  graph::Graph graph = toy_graph(8, false);
  hw::Profile here = nominal(), there = actual();
};

TEST_F(MeasuredTest, FactorsAreThoseOfTheMachine) {
  const Measurements m = measured();
  EXPECT_EQ(m.steps(), 2);
  EXPECT_NEAR(m.compute(graph, 3, Pass::kForward).factor(), 1.4, 1e-6);
  EXPECT_NEAR(m.compute(graph, 3, Pass::kBackward).factor(), 1.4, 1e-6);
  EXPECT_NEAR(m.other(Action::kUpdate, Lane::kHost).factor(), 0.8, 1e-6);
  EXPECT_NEAR(m.lane(Lane::kDiskRead).factor(), 2, 1e-6);
  EXPECT_NEAR(m.link_factor(), 1.2, 0.06);  // some of it beside the other direction
  EXPECT_NEAR(m.joint_factor(), 1.2, 0.06);
  EXPECT_EQ(Measurements().compute(graph, 3, Pass::kForward).factor(), 1);
  EXPECT_EQ(Measurements().other(Action::kUpdate, Lane::kHost).factor(), 1);
}

// A pass that never ran is as much slower as the others of its unit; a unit that never ran as those of its size.
TEST_F(MeasuredTest, WhatWasNotMeasuredIsTakenForWhatIsAlike) {
  const Program program = step_of(task(there), named_policy("resident", graph, {8, 4, 128})).program;
  Timeline timeline = simulate(program, CostTable(graph, program, there));
  Program part = program;
  for (size_t i = 0; i < part.instructions.size(); ++i) {  // only units below 3, no recompute
    const Instruction& instruction = part.instructions[i];
    const bool left_out = instruction.unit >= 3 || instruction.pass == Pass::kRecompute;
    if (instruction.action == Action::kCompute && left_out) part.instructions[i].action = Action::kAccumulate;
  }
  Measurements m;
  m.add(graph, part, CostTable(graph, program, here), timeline);
  EXPECT_NEAR(m.compute(graph, 5, Pass::kForward).factor(), 1.4, 1e-6);
  EXPECT_NEAR(m.compute(graph, 2, Pass::kRecompute).factor(), 1.4, 1e-6);
  EXPECT_EQ(m.compute(graph, 9, Pass::kLoss).factor(), 1);  // no unit of the head's size
}

TEST_F(MeasuredTest, PredictsAPolicyThatWasNotMeasured) {
  const Measurements m = measured();
  Policy policy = named_policy("zero3-offload", graph, {8, 4, 128});
  policy.update_chases_forward = true;
  const Program program = step_of(task(there), policy).program;
  const CostTable analytic(graph, program, here);
  const double real = simulate(program, CostTable(graph, program, there)).step_s;
  const double predicted = simulate(program, CostTable::measured(graph, program, analytic, m)).step_s;
  EXPECT_NEAR(predicted, real, 0.01 * real);
  EXPECT_LT(simulate(program, analytic).step_s, 0.9 * real);
}

TEST_F(MeasuredTest, ThePlannerPlansWithThem) {
  const Measurements m = measured();
  PlanningTask with = task(here);
  with.measured = &m;
  const Instance seen = make_instance(with), true_one = make_instance(task(there)), told = make_instance(task(here));
  for (size_t u = 0; u < seen.forward_s.size(); ++u) {
    EXPECT_NEAR(seen.forward_s[u], true_one.forward_s[u], 1e-3 * true_one.forward_s[u]);
    EXPECT_NEAR(seen.backward_s[u], true_one.backward_s[u], 1e-3 * true_one.backward_s[u]);
    EXPECT_NEAR(seen.update_s[u], true_one.update_s[u], 1e-3 * true_one.update_s[u]);
    EXPECT_GT(seen.forward_s[u], 1.3 * told.forward_s[u]);
  }
  EXPECT_NEAR(seen.links_gbs.disk_write, true_one.links_gbs.disk_write, 1e-6);
  EXPECT_NEAR(seen.links_gbs.h2d, true_one.links_gbs.h2d, 0.06 * true_one.links_gbs.h2d);
  const PlannedStep step = plan_step(with, {.solver = "greedy", .time_limit_s = 0}, false);
  EXPECT_NEAR(step.timeline.step_s, simulate(step.program, CostTable(graph, step.program, there)).step_s,
              0.01 * step.timeline.step_s);
}

TEST_F(MeasuredTest, RoundTripsAndRefusesWhatIsNotIts) {
  const Measurements m = measured();
  EXPECT_EQ(measurements_from_json(to_json(m), "m.json"), m);
  EXPECT_NO_THROW(check_against(m, graph, "m.json"));
  EXPECT_THROW(check_against(m, toy_graph(3, false), "m.json"), InputError);
  const auto expect_refused = [&](auto change, const char* words) {
    Json json = to_json(m);
    change(json);
    try {
      measurements_from_json(json, "m.json");
      ADD_FAILURE() << "taken: " << words;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  };
  expect_refused([](Json& j) { j["kind"] = "profile"; }, "kind");
  expect_refused([](Json& j) { j["compute"][0]["pass"] = "sideways"; }, "pass");
  expect_refused([](Json& j) { j["compute"][0]["seconds"] = -1; }, "seconds");
  expect_refused([](Json& j) { j["other"][0]["lane"] = 3; }, "lane");
  expect_refused([](Json& j) { j["other"] = 3; }, "other");
  expect_refused([](Json& j) { j.erase("steps"); }, "steps");
}

}  // namespace
}  // namespace lazytrain::plan
