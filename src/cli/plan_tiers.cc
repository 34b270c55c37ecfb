#include "cli/plan_tiers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "plan/describe.h"
#include "plan/lazytrain_paper.h"
#include "plan/mip/window_problem.h"

namespace lazytrain::cli {
namespace {

constexpr std::string_view kPlanner = "lazytrain";

void check_policy(const std::string& name) {
  std::vector<std::string> known = plan::step_names();
  known.emplace_back(kPlanner);
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  const std::string near = nearest(name, known);
  throw UsageError("--policy: '{}' is not a policy; known are {}{}", name, fmt::join(known, ", "),
                   near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
}

std::string row(const std::string& name, const plan::PlannedStep& step, const graph::Graph& graph, double best_s) {
  const plan::Figures f = plan::figures_of(step.program, graph, step.timeline);
  return fmt::format(
      "           {:<15} micro-batch {:>4}  device {:>9}  host {:>9}  {:>9} a step  {:>7.0f} tokens/s  {:.2f}x\n", name,
      step.program.policy.micro_batch, format_bytes(f.peak_bytes[0]), format_bytes(f.peak_bytes[1]),
      format_seconds(f.step_s), f.tok_per_s, f.step_s / best_s);
}

std::string comparison(const plan::PlanningTask& task, const plan::PlannedStep& best, bool any_micro_batch) {
  std::string text = "policies:  " + row(best.program.policy.name, best, task.graph, best.timeline.step_s).substr(11);
  for (const std::string& name : plan::step_names()) {
    if (name == plan::kPaperPolicy && task.graph.layers() > plan::kMaxPaperLayers) continue;
    const auto other = plan::named_step(task, name, any_micro_batch);
    text += other ? row(name, *other, task.graph, best.timeline.step_s)
                  : fmt::format("           {:<15} does not fit\n", name);
  }
  return text;
}

plan::PlannedStep with_disk_if_needed(plan::PlanningTask task, const TiersRequest& request, plan::TierGb& budget) {
  if (task.budget.disk > 0 || task.machine.disk_bytes == 0) {
    return plan::plan_step(task, request.solve, request.any_micro_batch);
  }
  try {
    return plan::plan_step(task, request.solve, request.any_micro_batch);
  } catch (const Infeasible& without) {
    task.budget.disk = static_cast<double>(task.machine.disk_bytes) / 1e9;
    try {
      plan::PlannedStep step = plan::plan_step(task, request.solve, request.any_micro_batch);
      budget = task.budget;
      spdlog::info("nothing fits without the disk of {}: planned with it", task.machine.name);
      return step;
    } catch (const Infeasible&) {
      throw without;
    }
  }
}

}  // namespace

plan::TierGb budget_gb(const plan::Budgets& budgets, const hw::Profile& machine) {
  const auto or_own = [](int64_t given, int64_t own) { return given > 0 ? given : own; };
  return plan::tier_gb(or_own(budgets.device, machine.device_bytes), or_own(budgets.host, machine.host_bytes),
                       budgets.disk);
}

TiersAnswer plan_on_tiers(const plan::PlanningTask& task, const TiersRequest& request) {
  const std::string name = request.policy == "auto" ? std::string(kPlanner) : request.policy;
  check_policy(name);
  if (!request.mps.empty()) plan::write_mps(plan::build_problem(plan::make_instance(task)).mip, request.mps);
  TiersAnswer answer;
  answer.budget = task.budget;
  if (name == kPlanner) {
    answer.step = with_disk_if_needed(task, request, answer.budget);
  } else {
    auto step = plan::named_step(task, name, request.any_micro_batch);
    if (!step && name == plan::kPaperPolicy) {
      throw Infeasible(
          "policy {}: no checkpoints of its kind fit the {} of device and {} of host memory of {}. `--policy "
          "lazytrain` "
          "plans for what is there",
          name, format_bytes(static_cast<int64_t>(1e9 * task.budget.device)),
          format_bytes(static_cast<int64_t>(1e9 * task.budget.host)), task.machine.name);
    }
    if (!step) {
      const plan::PlannedStep least = plan::step_of(task, plan::named_policy(name, task.graph, task.shape));
      throw Infeasible(
          "policy {} needs {} of device and {} of host memory; {} allows {} and {}. `--policy lazytrain` plans for "
          "what "
          "is there",
          name, format_bytes(least.program.tier_bytes[0]), format_bytes(least.program.tier_bytes[1]), task.machine.name,
          format_bytes(static_cast<int64_t>(1e9 * task.budget.device)),
          format_bytes(static_cast<int64_t>(1e9 * task.budget.host)));
    }
    answer.step = std::move(*step);
  }
  if (request.compare) answer.comparison = comparison(task, answer.step, request.any_micro_batch);
  return answer;
}

std::string explain_costs(const plan::PlanningTask& task) {
  const plan::Instance instance = plan::make_instance(task);
  std::string text = fmt::format("costs of one step on {}, {} at once:\n", task.machine.name, task.shape.micro_batch);
  size_t shown = 0;
  for (size_t j = 0; j < instance.forward_s.size(); ++j) {
    const bool same =
        j > 0 && instance.menu[j] == instance.menu[j - 1] && instance.forward_s[j] == instance.forward_s[j - 1];
    if (same || shown == 4) continue;
    ++shown;
    text += fmt::format("  layer.{}: forward {}, backward {}, update {}; weights {:.3g} GB, boundary {:.3g} GB\n", j,
                        format_seconds(instance.forward_s[j]), format_seconds(instance.backward_s[j]),
                        format_seconds(instance.update_s[j]), instance.weight_gb[j], instance.boundary_gb[j]);
    for (const plan::MenuEntry& entry : instance.menu[j]) {
      text +=
          fmt::format("    keeps {:.3g} GB, recomputes {}: {}\n", entry.retained_gb, format_seconds(entry.recompute_s),
                      entry.retained.empty() ? "nothing" : fmt::format("{}", fmt::join(entry.retained, ", ")));
    }
  }
  text += fmt::format("  head: {} with loss; weights {:.3g} GB\n", format_seconds(instance.head.compute_s),
                      instance.head.weight_gb);
  text += fmt::format("  left for boundaries and retained sets: device {:.4g} GB, host {:.4g} GB, disk {:.4g} GB\n",
                      instance.budget_gb.device, instance.budget_gb.host, instance.budget_gb.disk);
  return text;
}

}  // namespace lazytrain::cli
