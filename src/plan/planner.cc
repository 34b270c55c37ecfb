#include "plan/planner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "base/error.h"
#include "base/units.h"
#include "plan/lazytrain_paper.h"
#include "plan/remedies.h"

namespace lazytrain::plan {
namespace {

constexpr int kTightenings = 4;
constexpr int kMaxSlack = 3;
constexpr double kBudgetParts[] = {1.0, 0.94, 0.86};
constexpr double kCloseEnough = 1.005;
constexpr double kPaperTimeLimit = 30;  // seconds for the published program, which takes less than one
constexpr size_t kSolved = 2;           // micro-batches for which the mathematical program is solved

// The sizes to try, largest first: halves of the batch as far as a program holds their number, or the task's own.
std::vector<int64_t> micro_batches(const PlanningTask& task, bool any) {
  if (!any) return {task.shape.micro_batch};
  std::vector<int64_t> sizes = {task.shape.batch};
  while (sizes.back() > 1) {
    const int64_t half = (sizes.back() + 1) / 2;
    if ((task.shape.batch + half - 1) / half > most_micro_batches(task.graph.units.size())) break;
    sizes.push_back(half);
  }
  return sizes;
}

PlanningTask with_micro_batch(PlanningTask task, int64_t micro_batch) {
  task.shape.micro_batch = micro_batch;
  return task;
}

double over_gb(const Program& program, Tier tier, double budget_gb) {
  return std::max(0.0, static_cast<double>(program.tier_bytes[static_cast<size_t>(tier)]) / 1e9 - budget_gb);
}

// The slack with which the program is fastest, of those with which it fits.
PlannedStep with_slack(const PlanningTask& task, Policy policy) {
  std::optional<PlannedStep> best;
  for (int slack = 0; slack <= kMaxSlack; ++slack) {
    policy.transfer_slack = slack;
    PlannedStep step = step_of(task, policy);
    if (slack > 0 && !fits(task, step.program)) break;
    if (!best || step.timeline.step_s < best->timeline.step_s) best = std::move(step);
  }
  return std::move(*best);
}

// Solves, compiles, and solves again with less where the program needs more than was estimated.
std::optional<PlannedStep> solve_within(const PlanningTask& task, Instance instance, const SolveOptions& options) {
  for (int round = 0; round < kTightenings; ++round) {
    if (instance.budget_gb.device <= 0 || instance.budget_gb.host <= 0) return std::nullopt;
    const WindowSolution solution = solve_instance(instance, options);
    if (!solution.plan) return std::nullopt;
    Policy policy = make_policy(task, instance, solution.plan->choices);
    policy.solver = solution.solver;
    policy.bound_s = solution.bound_s;
    policy.gap = solution.gap;
    PlannedStep step = with_slack(task, policy);
    step.objective_s = solution.step_s;
    step.words = solution.words;
    if (fits(task, step.program)) return step;
    instance.budget_gb.device -= 1.05 * over_gb(step.program, Tier::kDevice, task.budget.device);
    instance.budget_gb.host -= 1.05 * over_gb(step.program, Tier::kHost, task.budget.host);
  }
  return std::nullopt;
}

// The mathematical program knows windows, not transfers: a plan that fills the device leaves no room for one that runs
// late. So it is solved with parts of the budgets too, and the simulator decides.
std::optional<PlannedStep> solve_and_compile(const PlanningTask& task, const SolveOptions& options) {
  const Instance whole = make_instance(task);
  std::optional<PlannedStep> best;
  double objective_s = 0, bound_s = 0;  // with the whole budget
  for (const double part : kBudgetParts) {
    Instance instance = whole;
    instance.budget_gb.device *= part;
    if (!instance.has_disk_homes()) instance.budget_gb.host *= part;
    auto step = solve_within(task, std::move(instance), options);
    if (!step) continue;
    if (objective_s == 0) {
      objective_s = step->objective_s;
      bound_s = step->program.policy.bound_s;
    }
    if (!best || step->timeline.step_s < best->timeline.step_s) best = std::move(step);
    if (best->timeline.step_s <= kCloseEnough * objective_s) break;
  }
  if (best && bound_s > 0) {
    best->program.policy.bound_s = bound_s;
    best->program.policy.gap = std::max(0.0, 1 - bound_s / best->objective_s);
  }
  return best;
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

std::vector<std::string> step_names() {
  std::vector<std::string> names = policy_names();
  names.emplace_back(kPaperPolicy);
  return names;
}

std::optional<PlannedStep> named_step(const PlanningTask& task, const std::string& name, bool any_micro_batch) {
  for (const int64_t micro : micro_batches(task, any_micro_batch)) {
    const PlanningTask with = with_micro_batch(task, micro);
    if (name == kPaperPolicy) {
      if (auto step = lazytrain_paper_step(with, {"", kPaperTimeLimit, -1})) return step;
      continue;
    }
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
  for (const int64_t micro : micro_batches(task, any_micro_batch)) {
    const Instance instance = make_instance(with_micro_batch(task, micro));
    if (instance.budget_gb.device <= 0 || instance.budget_gb.host <= 0) continue;
    const WindowSolution solution = solve_instance(instance, greedy);
    if (solution.plan) candidates.push_back({micro, solution.step_s});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.greedy_s < b.greedy_s; });
  SolveOptions share = options;
  share.time_limit_s /=
      static_cast<double>(std::size(kBudgetParts) * std::clamp<size_t>(candidates.size(), 1, kSolved));
  std::optional<PlannedStep> best;
  for (size_t i = 0; i < candidates.size() && (i < kSolved || !best); ++i) {
    auto step = solve_and_compile(with_micro_batch(task, candidates[i].micro_batch), share);
    if (step && (!best || step->timeline.step_s < best->timeline.step_s)) best = std::move(step);
  }
  // Estimates err to the larger side: a fixed rule may fit where no estimate does, or be as good in a corner.
  for (const std::string& name : policy_names()) {
    auto rule = named_step(task, name, any_micro_batch);
    if (!rule || (best && rule->timeline.step_s >= best->timeline.step_s)) continue;
    Policy& policy = rule->program.policy;
    policy.name = "lazytrain";
    policy.solver = "rule " + name;
    if (best) {
      policy.bound_s = std::min(best->program.policy.bound_s, rule->timeline.step_s);
      policy.gap = 1 - policy.bound_s / rule->timeline.step_s;
    }
    best = std::move(rule);
  }
  if (!best) throw_infeasible(task);
  return std::move(*best);
}

}  // namespace lazytrain::plan
