#include "plan/lazytrain_paper.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace lazytrain::plan {
namespace {

constexpr int kTightenings = 6;
constexpr int kMaxBlock = 8;
constexpr double kGap = 1e-3;

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

double over_gb(const Program& program, Tier tier, double budget_gb) {
  return std::max(0.0, static_cast<double>(program.tier_bytes[static_cast<size_t>(tier)]) / 1e9 - budget_gb);
}

PaperInstance paper_instance_of(const Instance& windows, const TierGb& capacities) {
  PaperInstance in;
  in.name = windows.name;
  in.layers = windows.units;
  in.max_block = std::min(kMaxBlock, windows.units);
  in.gap = kGap;
  in.links_gbs = windows.links_gbs;
  in.links_gbs.joint = 0;
  in.budget_gb = capacities;
  in.gradient_gb = windows.grad_gb;
  in.parameter_gb = windows.weight_gb;
  in.boundary_gb = windows.boundary_gb;
  in.boundary_gb.push_back(windows.boundary_gb.back());
  for (size_t j = 0; j < windows.forward_s.size(); ++j) {
    in.recompute_ms.push_back(1000 * windows.forward_s[j]);
    in.out_window_ms.push_back(1000 * windows.forward_s[j]);
    in.back_window_ms.push_back(1000 * (windows.forward_s[j] + windows.backward_s[j]));
  }
  if (in.links_gbs.disk_read <= 0 || in.links_gbs.disk_write <= 0) in.budget_gb.disk = 0;
  return in;
}

TierGb capacities_of(const PlanningTask& task, const Instance& windows) {
  double workspace = *std::max_element(windows.forward_workspace_gb.begin(), windows.forward_workspace_gb.end());
  for (const auto& menu : windows.menu) workspace = std::max(workspace, menu.front().workspace_gb);
  // The state has no home but the host.
  const double state = sum(windows.host_state_gb) + sum(windows.host_weight_gb);
  return {windows.budget_gb.device - workspace, windows.budget_gb.host - state - windows.host_end_gb, task.budget.disk};
}

}  // namespace

TierGb paper_capacities(const PlanningTask& task) { return capacities_of(task, make_instance(task)); }

PaperInstance make_paper_instance(const PlanningTask& task, const TierGb& capacities) {
  return paper_instance_of(make_instance(task), capacities);
}

Policy make_paper_policy(const PlanningTask& task, const PaperPlan& plan) {
  Policy policy = blank_policy(kPaperPolicy, task.graph, task.shape);
  policy.optimizer_state = task.optimizer_state;
  policy.recompute_whole_unit = true;
  policy.update_chases_forward = false;
  for (size_t i = 0; i < plan.homes.size(); ++i) {
    policy.boundaries[i].checkpoint = plan.homes[i].has_value();
    policy.boundaries[i].home = plan.homes[i].value_or(Tier::kDevice);
  }
  return policy;
}

std::optional<PlannedStep> lazytrain_paper_step(const PlanningTask& task, const SolveOptions& options,
                                                const std::optional<TierGb>& capacities) {
  if (task.graph.layers() > kMaxPaperLayers) {
    throw UsageError("policy {} plans models of at most {} layers, this one has {}", kPaperPolicy, kMaxPaperLayers,
                     task.graph.layers());
  }
  const Instance windows = make_instance(task);
  PaperInstance in = paper_instance_of(windows, capacities.value_or(capacities_of(task, windows)));
  for (int round = 0; round < kTightenings; ++round) {
    if (in.budget_gb.device <= 0 || in.budget_gb.host < 0) return std::nullopt;
    const PaperSolution solution = solve_paper(in, options);
    if (!solution.plan) return std::nullopt;
    Policy policy = make_paper_policy(task, *solution.plan);
    policy.solver = solution.solver;
    policy.gap = solution.gap;
    PlannedStep step = step_of(task, policy);
    step.words = solution.words;
    if (capacities || fits(task, step.program)) return step;
    in.budget_gb.device -= 1.05 * over_gb(step.program, Tier::kDevice, task.budget.device);
    in.budget_gb.host -= 1.05 * over_gb(step.program, Tier::kHost, task.budget.host);
    in.budget_gb.disk = std::max(0.0, in.budget_gb.disk - over_gb(step.program, Tier::kDisk, task.budget.disk));
  }
  return std::nullopt;
}

}  // namespace lazytrain::plan
