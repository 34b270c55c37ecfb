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

}  // namespace

plan::TierGb budget_gb(const plan::Budgets& budgets, const hw::Profile& machine) {
  const auto or_own = [](int64_t given, int64_t own) { return given > 0 ? given : own; };
  return plan::tier_gb(or_own(budgets.device, machine.device_bytes), or_own(budgets.host, machine.host_bytes),
                       budgets.disk);
}

TiersAnswer plan_on_tiers(const plan::PlanningTask& task, const TiersRequest& request) {
  const std::string name = request.policy == "auto" ? std::string(kPlanner) : request.policy;
  std::vector<std::string> known = plan::step_names();
  known.emplace_back(kPlanner);
  plan::check_policy_name(name, "--policy", known);
  if (task.update_in_backward && name != kPlanner) {
    throw UsageError(
        "--no-clip: policy {} is a fixed rule, whose updates do not begin in backward; leave one of them out", name);
  }
  if (!request.mps.empty()) plan::write_mps(plan::build_problem(plan::make_instance(task)).mip, request.mps);
  TiersAnswer answer;
  answer.budget = task.budget;
  if (name == kPlanner) {
    plan::PlanningTask with = task;
    answer.step = plan::plan_step_with_disk(with, request.solve, request.any_micro_batch);
    if (with.budget.disk > task.budget.disk) {
      spdlog::info("nothing fits without the disk of {}: planned with it", task.machine.name);
    }
    answer.budget = with.budget;
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
  const auto source = [](const plan::Measured& m) {
    return m.count > 0 ? fmt::format("measured, {:.3g} of analytic", m.factor()) : std::string("analytic");
  };
  const auto compute = [&](size_t layer, plan::Pass pass) {
    const int unit = static_cast<int>(layer) + 1;
    return source(task.measured ? task.measured->compute(task.graph, unit, pass) : plan::Measured());
  };
  const auto lane = [&](plan::Lane l) { return source(task.measured ? task.measured->lane(l) : plan::Measured()); };
  std::string text = fmt::format("costs of one step on {}, {} at once", task.machine.name, task.shape.micro_batch);
  text += task.measured ? fmt::format(", measured in {} steps where it says so:\n", task.measured->steps())
                        : ", all analytic, from the profile:\n";
  size_t shown = 0;
  for (size_t j = 0; j < instance.forward_s.size(); ++j) {
    const bool same =
        j > 0 && instance.menu[j] == instance.menu[j - 1] && instance.forward_s[j] == instance.forward_s[j - 1];
    if (same || shown == 4) continue;
    ++shown;
    text +=
        fmt::format("  layer.{}: forward {} ({}), backward {} ({}), update {}; weights {:.3g} GB, boundary {:.3g} GB\n",
                    j, format_seconds(instance.forward_s[j]), compute(j, plan::Pass::kForward),
                    format_seconds(instance.backward_s[j]), compute(j, plan::Pass::kBackward),
                    format_seconds(instance.update_s[j]), instance.weight_gb[j], instance.boundary_gb[j]);
    for (const plan::MenuEntry& entry : instance.menu[j]) {
      text +=
          fmt::format("    keeps {:.3g} GB, recomputes {}: {}\n", entry.retained_gb, format_seconds(entry.recompute_s),
                      entry.retained.empty() ? "nothing" : fmt::format("{}", fmt::join(entry.retained, ", ")));
    }
  }
  text += fmt::format("  head: {} with loss ({}); weights {:.3g} GB\n", format_seconds(instance.head.compute_s),
                      compute(instance.forward_s.size(), plan::Pass::kLoss), instance.head.weight_gb);
  const plan::LinkRates& links = instance.links_gbs;
  text += fmt::format(
      "  lanes: h2d {:.3g} GB/s ({}), d2h {:.3g} GB/s ({}), both {:.3g} GB/s, disk read {:.3g} GB/s ({}), "
      "disk write {:.3g} GB/s ({}), host optimizer ({})\n",
      links.h2d, lane(plan::Lane::kH2D), links.d2h, lane(plan::Lane::kD2H), links.joint, links.disk_read,
      lane(plan::Lane::kDiskRead), links.disk_write, lane(plan::Lane::kDiskWrite),
      source(task.measured ? task.measured->other(plan::Action::kUpdate, plan::Lane::kHost) : plan::Measured()));
  text += fmt::format("  left for boundaries and retained sets: device {:.4g} GB, host {:.4g} GB, disk {:.4g} GB\n",
                      instance.budget_gb.device, instance.budget_gb.host, instance.budget_gb.disk);
  return text;
}

}  // namespace lazytrain::cli
