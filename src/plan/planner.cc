#include "plan/planner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "base/error.h"
#include "base/units.h"
#include "plan/remedies.h"

namespace lazytrain::plan {
namespace {

constexpr int kTightenings = 4;
constexpr size_t kSolved = 2;  // micro-batches for which the mathematical program is solved

std::vector<int64_t> micro_batches(int64_t batch, bool any) {
  std::vector<int64_t> sizes = {batch};
  while (any && sizes.back() > 1) sizes.push_back((sizes.back() + 1) / 2);
  return sizes;
}

PlanningTask with_micro_batch(PlanningTask task, int64_t micro_batch) {
  task.shape.micro_batch = micro_batch;
  return task;
}

double over_gb(const Program& program, Tier tier, double budget_gb) {
  return std::max(0.0, static_cast<double>(program.tier_bytes[static_cast<size_t>(tier)]) / 1e9 - budget_gb);
}

// Solves, compiles, and solves again with less where the program needs more than was estimated.
std::optional<PlannedStep> solve_and_compile(const PlanningTask& task, const SolveOptions& options) {
  Instance instance = make_instance(task);
  for (int round = 0; round < kTightenings; ++round) {
    if (instance.budget_gb.device <= 0 || instance.budget_gb.host <= 0) return std::nullopt;
    const WindowSolution solution = solve_instance(instance, options);
    if (!solution.plan) return std::nullopt;
    Policy policy = make_policy(task, instance, solution.plan->choices);
    policy.solver = solution.solver;
    policy.bound_s = solution.bound_s;
    policy.gap = solution.gap;
    PlannedStep step = step_of(task, policy);
    step.objective_s = solution.step_s;
    step.words = solution.words;
    const double device = over_gb(step.program, Tier::kDevice, task.budget.device);
    const double host = over_gb(step.program, Tier::kHost, task.budget.host);
    if (device == 0 && host == 0 && over_gb(step.program, Tier::kDisk, task.budget.disk) == 0) return step;
    instance.budget_gb.device -= 1.05 * device;
    instance.budget_gb.host -= 1.05 * host;
  }
  return std::nullopt;
}

}  // namespace

PlannedStep step_of(const PlanningTask& task, const Policy& policy) {
  const CompileOptions options{.compute = task.compute, .machine = &task.machine, .scratch_bytes = task.scratch_bytes};
  PlannedStep step;
  step.program = compile(task.graph, policy, options);
  if (const auto faults = validate(step.program); !faults.empty()) {
    throw std::logic_error(
        fmt::format("plan '{}' compiles to an unsound program: {}", policy.name, fmt::join(faults, "; ")));
  }
  step.timeline = simulate(step.program, CostTable(task.graph, step.program, task.machine));
  step.program.policy.predicted_step_s = step.timeline.step_s;
  return step;
}

bool fits(const PlanningTask& task, const Program& program) {
  return over_gb(program, Tier::kDevice, task.budget.device) == 0 &&
         over_gb(program, Tier::kHost, task.budget.host) == 0 && over_gb(program, Tier::kDisk, task.budget.disk) == 0;
}

std::optional<PlannedStep> named_step(const PlanningTask& task, const std::string& name, bool any_micro_batch) {
  for (const int64_t micro :
       micro_batches(any_micro_batch ? task.shape.batch : task.shape.micro_batch, any_micro_batch)) {
    const PlanningTask with = with_micro_batch(task, micro);
    Policy policy = named_policy(name, task.graph, with.shape);
    policy.optimizer_state = task.optimizer_state;
    PlannedStep step = step_of(with, policy);
    if (fits(with, step.program)) return step;
  }
  return std::nullopt;
}

PlannedStep plan_step(const PlanningTask& task, const SolveOptions& options, bool any_micro_batch) {
  struct Candidate {
    int64_t micro_batch;
    double greedy_s;
  };
  std::vector<Candidate> candidates;
  SolveOptions greedy = options;
  greedy.solver = "greedy";
  for (const int64_t micro :
       micro_batches(any_micro_batch ? task.shape.batch : task.shape.micro_batch, any_micro_batch)) {
    const Instance instance = make_instance(with_micro_batch(task, micro));
    if (instance.budget_gb.device <= 0 || instance.budget_gb.host <= 0) continue;
    const WindowSolution solution = solve_instance(instance, greedy);
    if (solution.plan) candidates.push_back({micro, solution.step_s});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.greedy_s < b.greedy_s; });
  SolveOptions share = options;
  share.time_limit_s /= static_cast<double>(std::max<size_t>(1, std::min(kSolved, candidates.size())));
  std::optional<PlannedStep> best;
  for (size_t i = 0; i < candidates.size() && (i < kSolved || !best); ++i) {
    auto step = solve_and_compile(with_micro_batch(task, candidates[i].micro_batch), share);
    if (step && (!best || step->timeline.step_s < best->timeline.step_s)) best = std::move(step);
  }
  if (!best) throw_infeasible(task);
  return std::move(*best);
}

}  // namespace lazytrain::plan
