#include "plan/planner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <stdexcept>

#include "plan/lazytrain_paper.h"
#include "plan/remedies.h"

namespace lazytrain::plan {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTightenings = 4;
constexpr int kMaxSlack = 3;
constexpr double kLessDevice = 0.94;    // of the budget, when a plan that fills it runs late
constexpr double kCloseEnough = 1.005;  // simulated against the objective, or the bound
constexpr double kOnTime = 1.001;       // more slack than that needs is not tried
constexpr double kPaperTimeLimit = 30;  // seconds for the published program, which takes less than one
constexpr size_t kSolved = 2;           // micro-batches for which the mathematical program is solved
constexpr double kSolvePart = 0.7;      // of the time limit, for the first solutions; the rest for tightened ones

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

PlannedStep compiled(const PlanningTask& task, const Policy& policy) {
  const CompileOptions options{.compute = task.compute,
                               .machine = &task.machine,
                               .scratch_bytes = task.scratch_bytes,
                               .piece_elements = task.piece_elements};
  PlannedStep step;
  step.program = compile(task.graph, policy, options);
  step.timeline = simulate(step.program, costs_of(task, step.program));
  step.program.policy.predicted_step_s = step.timeline.step_s;
  return step;
}

PlannedStep proven(PlannedStep step) {
  if (const auto faults = validate(step.program); !faults.empty()) {
    throw std::logic_error(
        fmt::format("plan '{}' compiles to an unsound program: {}", step.program.policy.name, fmt::join(faults, "; ")));
  }
  return step;
}

// Calls f(0) to f(count - 1), two at a time: solvers and the greedy rule use one core each.
template <typename F>
void two_at_a_time(size_t count, const F& f) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) f(i);
  };
  std::future<void> other;
  if (count > 1) other = std::async(std::launch::async, work);
  work();
  if (count > 1) other.get();
}

// One micro-batch: from its instance to the fastest program that fits.
struct Candidate {
  int64_t micro_batch = 0;
  Instance instance;
  WindowSolution solution;
};

class Planning {
 public:
  Planning(const PlanningTask& task, const SolveOptions& options, bool any_micro_batch)
      : task_(task), options_(options), any_micro_batch_(any_micro_batch) {}

  std::optional<PlannedStep> run() {
    find_candidates();
    if (stopped()) return std::nullopt;
    const size_t solved = std::min(candidates_.size(), kSolved);
    if (options_.solver != "greedy" && options_.time_limit_s > 0) {
      SolveOptions share = options_;
      share.time_limit_s = std::max(0.0, kSolvePart * options_.time_limit_s - elapsed_s());
      two_at_a_time(solved, [&](size_t i) {
        WindowSolution solution = solve_instance(candidates_[i].instance, share);
        if (solution.plan) candidates_[i].solution = std::move(solution);
      });
    }
    std::optional<PlannedStep> best;
    for (size_t i = 0; i < candidates_.size() && (i < kSolved || !best) && !stopped(); ++i) {
      Candidate& candidate = candidates_[i];
      if (best && candidate.solution.step_s >= best->timeline.step_s) continue;
      auto step = fitted(candidate);
      if (step && (!best || step->timeline.step_s < best->timeline.step_s)) best = std::move(step);
    }
    try_rules(best);
    if (stopped()) return std::nullopt;
    if (best) best = proven(std::move(*best));
    return best;
  }

 private:
  double elapsed_s() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  bool stopped() const { return options_.stop.stop_requested(); }

  // By the greedy rule's step, the fastest first.
  void find_candidates() {
    const std::vector<int64_t> sizes = micro_batches(task_, any_micro_batch_);
    std::vector<std::optional<Candidate>> found(sizes.size());
    SolveOptions greedy = options_;
    greedy.solver = "greedy";
    two_at_a_time(sizes.size(), [&](size_t i) {
      if (stopped()) return;
      Candidate candidate{sizes[i], make_instance(with_micro_batch(task_, sizes[i])), {}};
      if (candidate.instance.budget_gb.device <= 0 || candidate.instance.budget_gb.host <= 0) return;
      candidate.solution = solve_instance(candidate.instance, greedy);
      if (candidate.solution.plan) found[i].emplace(std::move(candidate));
    });
    for (auto& candidate : found) {
      if (candidate) candidates_.push_back(std::move(*candidate));
    }
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.solution.step_s < b.solution.step_s; });
  }

  // The slack with which the program is fastest, of those with which it fits.
  PlannedStep with_slack(const PlanningTask& task, Policy policy, double objective_s) const {
    std::optional<PlannedStep> best;
    for (int slack = 0; slack <= kMaxSlack && !(best && stopped()); ++slack) {
      policy.transfer_slack = slack;
      PlannedStep step = compiled(task, policy);
      if (slack > 0 && !fits(task, step.program)) break;
      if (!best || step.timeline.step_s < best->timeline.step_s) best = std::move(step);
      if (best->timeline.step_s <= kOnTime * objective_s) break;
    }
    return std::move(*best);
  }

  // Windows know nothing of single transfers and of places: where the program needs more than was estimated, or runs
  // late because the plan fills the device, it is made again for less. The bound is that of the whole budget.
  std::optional<PlannedStep> fitted(const Candidate& candidate) const {
    const PlanningTask task = with_micro_batch(task_, candidate.micro_batch);
    Instance instance = candidate.instance;
    WindowSolution solution = candidate.solution;
    const double bound_s = solution.bound_s;
    std::optional<PlannedStep> best;
    for (int round = 0; round < kTightenings && !stopped(); ++round) {
      Policy policy = make_policy(task, instance, solution.plan->choices);
      policy.solver = solution.solver;
      PlannedStep step = with_slack(task, policy, solution.step_s);
      step.objective_s = solution.step_s;
      step.words = solution.words;
      const double seconds = step.timeline.step_s;
      if (fits(task, step.program)) {
        if (!best || seconds < best->timeline.step_s) best = std::move(step);
        if (seconds <= kCloseEnough * solution.step_s || seconds <= kCloseEnough * bound_s) break;
        instance.budget_gb.device *= kLessDevice;
      } else {
        instance.budget_gb.device -= 1.05 * over_gb(step.program, Tier::kDevice, task.budget.device);
        instance.budget_gb.host -= 1.05 * over_gb(step.program, Tier::kHost, task.budget.host);
      }
      if (instance.budget_gb.device <= 0 || instance.budget_gb.host <= 0) break;
      SolveOptions again = options_;
      again.bound_s = bound_s;
      again.time_limit_s = std::max(0.0, (options_.time_limit_s - elapsed_s()) / 2);
      solution = solve_instance(instance, again);
      if (!solution.plan) break;
    }
    if (best) {
      Policy& policy = best->program.policy;
      policy.bound_s = bound_s;
      policy.gap = std::max(0.0, 1 - bound_s / best->objective_s);
    }
    return best;
  }

  // Estimates err to the larger side: a fixed rule may fit where no estimate does, or be as good in a corner. None is
  // worth a look where the bound leaves nothing to gain.
  void try_rules(std::optional<PlannedStep>& best) const {
    if (best && best->timeline.step_s <= kCloseEnough * best->program.policy.bound_s) return;
    if (!task_.chase || !task_.retained_sets) return;  // rules do not know what is to be left out
    for (const std::string& name : policy_names()) {
      if (stopped()) return;
      auto rule = named_step(task_, name, any_micro_batch_);
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
  }

  const PlanningTask& task_;
  const SolveOptions& options_;
  bool any_micro_batch_;
  Clock::time_point begin_ = Clock::now();
  std::vector<Candidate> candidates_;
};

// State that lives on a tier under a policy, before anything else does: GB. What is on the device or the host counts
// there, as the compiler has it.
bool state_fits(const PlanningTask& task, const Policy& policy) {
  TierGb gb;
  const std::vector<int64_t> moments = optimizer_bytes(task.graph, policy.optimizer_state);
  for (size_t u = 0; u < task.graph.units.size(); ++u) {
    const auto n = static_cast<double>(task.graph.units[u].block_elements) / 1e9;
    const auto on = [&](Tier home) -> double& {
      const bool host = home == Tier::kHost || (u == 0 && home == Tier::kDevice);
      return host ? gb.host : home == Tier::kDevice ? gb.device : gb.disk;
    };
    on(policy.units[u].weight_home) += (4.0 + 2.0) * n;  // with their gradient, bf16 at least
    on(policy.units[u].optimizer_home) += static_cast<double>(moments[u]) / 1e9;
  }
  return gb.device <= task.budget.device && gb.host <= task.budget.host && gb.disk <= task.budget.disk;
}

}  // namespace

CostTable costs_of(const PlanningTask& task, const Program& program) {
  const CostTable analytic(task.graph, program, task.machine);
  return task.measured ? CostTable::measured(task.graph, program, analytic, *task.measured) : analytic;
}

PlannedStep step_of(const PlanningTask& task, const Policy& policy) { return proven(compiled(task, policy)); }

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
    if (!state_fits(with, policy)) return std::nullopt;
    PlannedStep step = compiled(with, policy);
    if (fits(with, step.program)) return proven(std::move(step));
  }
  return std::nullopt;
}

PlannedStep plan_step(const PlanningTask& task, const SolveOptions& options, bool any_micro_batch) {
  auto step = Planning(task, options, any_micro_batch).run();
  if (!step) throw_infeasible(task, any_micro_batch);
  return std::move(*step);
}

std::optional<PlannedStep> find_step_with_disk(PlanningTask& task, const SolveOptions& options, bool any_micro_batch) {
  auto step = Planning(task, options, any_micro_batch).run();
  const double none = task.budget.disk;
  if (step || none > 0 || task.machine.disk_bytes <= 0) return step;
  task.budget.disk = static_cast<double>(task.machine.disk_bytes) / 1e9;
  step = Planning(task, options, any_micro_batch).run();
  if (!step) task.budget.disk = none;
  return step;
}

PlannedStep plan_step_with_disk(PlanningTask& task, const SolveOptions& options, bool any_micro_batch) {
  if (auto step = find_step_with_disk(task, options, any_micro_batch)) return std::move(*step);
  throw_infeasible(task, any_micro_batch);
}

}  // namespace lazytrain::plan
