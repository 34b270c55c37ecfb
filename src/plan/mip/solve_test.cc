#include "plan/mip/solve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "plan/mip/evaluate.h"
#include "plan/mip/feasible.h"
#include "plan/mip/incumbent.h"
#include "plan/mip/instance_testing.h"
#include "plan/mip/window_problem.h"

namespace lazytrain::plan {
namespace {

using ::testing::IsEmpty;
using testing::random_instance;

Instance load(const std::filesystem::path& file) { return instance_from_json(read_json(file), file.string()); }
Instance small() { return load(std::filesystem::path(LAZYTRAIN_SOURCE_DIR) / "src/plan/mip/testdata/small.json"); }

bool is_there(const std::string& solver) {
  try {
    require_solver(solver);
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

void expect_sound(const Instance& instance, const WindowSolution& solution) {
  ASSERT_TRUE(solution.plan.has_value());
  EXPECT_THAT(check(instance, *solution.plan), IsEmpty());
  EXPECT_EQ(solution.step_s, solution.plan->step_s);
  EXPECT_LE(solution.bound_s, solution.step_s);
  EXPECT_GE(solution.bound_s, instance.bound_s() * (1 - 1e-12));
  EXPECT_NEAR(solution.gap, (solution.step_s - solution.bound_s) / solution.step_s, 1e-12);
}

class SharedInstance : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(
    Planner, SharedInstance,
    ::testing::Combine(::testing::Values("tiny4", "rtx3090_7b", "rtx3090_14b_disk", "h800_3b_resident",
                                         "h800_14b_link12", "h800_14b_link55", "h100_32b"),
                       ::testing::Values("highs", "scip")),
    [](const auto& chosen) { return std::string(std::get<0>(chosen.param)) + "_" + std::get<1>(chosen.param); });

TEST_P(SharedInstance, IsSolvedAsWellAsByOthers) {
  const auto& [name, solver] = GetParam();
  if (!is_there(solver)) GTEST_SKIP() << solver << " is not there";
  const char* set = std::getenv("LAZYTRAIN_SHARED");
  const std::filesystem::path shared = set != nullptr ? set : LAZYTRAIN_SOURCE_DIR "/../shared";
  const auto file = shared / "data/planner" / (std::string(name) + ".json");
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file << " (LAZYTRAIN_SHARED names its folder)";
  const Instance instance = load(file);
  const WindowSolution solution = solve_instance(instance, {solver, 120, -1});
  expect_sound(instance, solution);
  EXPECT_EQ(solution.status, WindowStatus::kOptimal) << solution.words;
  EXPECT_EQ(solution.solver, solver);
  EXPECT_LE(solution.gap, instance.gap + 1e-6);
  ASSERT_TRUE(instance.reference.has_value());
  EXPECT_NEAR(solution.step_s, instance.reference->step_s, instance.gap * instance.reference->step_s);
  EXPECT_LE(solution.incumbent_step_s, instance.reference->step_s * 1.03);
  std::printf("%s by %s: %.4f s (reference %.4f), gap %.2g, %.2f s (reference %.2f)\n", name, solver, solution.step_s,
              instance.reference->step_s, solution.gap, solution.solve_s, instance.reference->seconds_2_cores);
}

TEST(Solve, SolversAgree) {
  std::vector<Instance> instances = {small()};
  for (uint64_t seed = 0; seed < 6; ++seed) instances.push_back(random_instance({6, true, true}, 100 + seed));
  for (const Instance& instance : instances) {
    SCOPED_TRACE(instance.name);
    std::optional<WindowSolution> first;
    for (const char* solver : {"highs", "scip"}) {
      if (!is_there(solver)) continue;
      const WindowSolution solution = solve_instance(instance, {solver, 60, 0});
      if (first) {
        ASSERT_EQ(solution.plan.has_value(), first->plan.has_value());
        EXPECT_NEAR(solution.step_s, first->step_s, 2e-5 * first->step_s);
      }
      if (solution.plan) expect_sound(instance, solution);
      first = solution;
    }
    if (!first) GTEST_SKIP() << "no solver is there";
  }
}

TEST(Solve, APlanWithoutTimeOrSolver) {
  const Instance instance = small();
  for (const SolveOptions& options : {SolveOptions{"", 0, 0}, SolveOptions{"greedy", 60, 0}}) {
    const WindowSolution solution = solve_instance(instance, options);
    expect_sound(instance, solution);
    EXPECT_EQ(solution.solver, "greedy");
    EXPECT_NE(solution.status, WindowStatus::kInfeasible);
  }
}

TEST(Solve, IsDeterministic) {
  const Instance instance = small();
  const WindowSolution a = solve_instance(instance, {}), b = solve_instance(instance, {});
  EXPECT_EQ(a.plan->choices, b.plan->choices);
  EXPECT_EQ(a.step_s, b.step_s);
}

TEST(Solve, WhatIsLackingIsWhatIsNeeded) {
  int infeasible = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Instance instance = random_instance({4, true, false}, 300 + seed);
    instance.budget_gb.device *= 0.4;
    const WindowSolution solution = solve_instance(instance, {"greedy", 60, 0});
    if (solution.plan) continue;
    ++infeasible;
    ASSERT_TRUE(solution.shortage.has_value());
    double& budget = solution.shortage->tier == Tier::kDevice ? instance.budget_gb.device : instance.budget_gb.host;
    EXPECT_EQ(solution.shortage->budget_gb, budget);
    EXPECT_NEAR(solution.shortage->needed_gb - budget, solution.shortage->lacking_gb, 1e-9);
    budget = solution.shortage->needed_gb;
    EXPECT_TRUE(solve_instance(instance, {"greedy", 60, 0}).plan.has_value());
    budget = solution.shortage->needed_gb * (1 - 1e-4);
    EXPECT_FALSE(solve_instance(instance, {"greedy", 60, 0}).plan.has_value());
  }
  EXPECT_GT(infeasible, 3);
}

TEST(Solve, LongModelsArePlannedQuickly) {
  Instance instance = random_instance({100, true, true}, 7);
  const auto fit = find_fit(instance);
  ASSERT_TRUE(fit.choices.has_value());
  const WindowPlan plan = greedy_plan(instance, *fit.choices);
  EXPECT_THAT(check(instance, plan), IsEmpty());
  EXPECT_LE(plan.step_s, Evaluator(instance).step_s(*fit.choices));
}

TEST(Evaluator, PlansAreSolutionsOfTheProgram) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Instance instance =
        random_instance({5, true, true, seed % 2 == 0, seed % 3 == 0, seed % 4 != 0, seed % 5 == 0}, seed);
    const auto fit = find_fit(instance);
    if (!fit.choices) continue;
    const WindowPlan plan = greedy_plan(instance, *fit.choices, 500);
    const WindowProblem problem = build_problem(instance);
    const std::vector<double> values = problem.values_of(plan);
    EXPECT_LE(problem.mip.max_violation(values), 1e-9) << instance.name;
    EXPECT_NEAR(problem.mip.objective(values), plan.step_s, problem.max_ties + 1e-12);
    EXPECT_EQ(problem.choices_of(values), plan.choices);
    EXPECT_THAT(check(instance, problem.plan_of(values)), IsEmpty());
  }
}

TEST(Check, SeesEveryKindOfFault) {
  const Instance instance = small();
  const WindowPlan sound = *solve_instance(instance, {"greedy", 60, 0}).plan;
  const auto is_faulty = [&](auto change) {
    WindowPlan plan = sound;
    change(plan);
    return !check(instance, plan).empty();
  };
  EXPECT_FALSE(is_faulty([](WindowPlan&) {}));
  EXPECT_TRUE(is_faulty([](WindowPlan& p) { p.step_s *= 0.99; }));
  EXPECT_TRUE(is_faulty([](WindowPlan& p) { p.forward_s[2] *= 0.5; }));
  EXPECT_TRUE(is_faulty([](WindowPlan& p) { p.backward_s[2] *= 0.5; }));
  EXPECT_TRUE(is_faulty([](WindowPlan& p) { p.head_s *= 0.5; }));
  EXPECT_TRUE(is_faulty([](WindowPlan& p) { p.start_s[0] = 0; }));
  EXPECT_TRUE(is_faulty([](WindowPlan& p) { p.drain_gb[0] += 0.1; }));
  EXPECT_TRUE(is_faulty([](WindowPlan& p) { p.return_gb[6] += 0.1; }));
  EXPECT_TRUE(is_faulty([](WindowPlan& p) { p.disk_read_gb[3] += 0.1; }));
  EXPECT_TRUE(is_faulty([](WindowPlan& p) { p.choices.boundaries[0].reset(); }));
  EXPECT_TRUE(is_faulty([](WindowPlan& p) {
    for (size_t i = 1; i < 6; ++i) p.choices.boundaries[i].reset();
  }));
  EXPECT_TRUE(is_faulty([](WindowPlan& p) { p.choices.units[1].menu = 9; }));
  EXPECT_TRUE(is_faulty([](WindowPlan& p) {
    for (UnitChoice& unit : p.choices.units) unit.device_home = true;
  }));
  EXPECT_TRUE(is_faulty([](WindowPlan& p) { p.choices.units[1].state_on_disk = true; }));
  EXPECT_TRUE(is_faulty([](WindowPlan& p) { p.early_update_s[1] = 0.01; }));
}

}  // namespace
}  // namespace lazytrain::plan
