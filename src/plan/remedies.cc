#include "plan/remedies.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "plan/mip/solve.h"

namespace lazytrain::plan {
namespace {

constexpr size_t kRemedies = 3;
constexpr int64_t kLeastSeq = 64;

std::string gb(double value) { return format_bytes(static_cast<int64_t>(value * 1e9)); }

// The greedy rule's step time; empty when it does not fit.
std::optional<double> quick_step(const PlanningTask& task) {
  const Instance instance = make_instance(task);
  if (instance.budget_gb.device <= 0 || instance.budget_gb.host <= 0) return std::nullopt;
  const WindowSolution solution = solve_instance(instance, {.solver = "greedy", .time_limit_s = 0});
  if (!solution.plan) return std::nullopt;
  return solution.step_s;
}

PlanningTask on_machine(const PlanningTask& task, const hw::Profile& machine) {
  return {task.graph,
          machine,
          task.shape,
          task.compute,
          task.optimizer_state,
          task.scratch_bytes,
          tier_gb(machine.device_bytes, machine.host_bytes, machine.disk_bytes)};
}

struct Remedy {
  std::string change;
  double seconds_a_token;
};

std::vector<Remedy> remedies(const PlanningTask& task) {
  std::vector<Remedy> found;
  const auto try_task = [&](const std::string& change, PlanningTask changed) {
    changed.shape.micro_batch = 1;
    const auto seconds = quick_step(changed);
    if (seconds) {
      found.push_back({change, *seconds / static_cast<double>(changed.shape.batch * changed.shape.seq)});
    }
    return seconds.has_value();
  };
  for (PlanningTask smaller = task; smaller.shape.micro_batch > 1;) {
    smaller.shape.micro_batch /= 2;
    const auto seconds = quick_step(smaller);
    if (!seconds) continue;
    found.push_back(
        {fmt::format("a micro-batch of {} (--micro-batch {})", smaller.shape.micro_batch, smaller.shape.micro_batch),
         *seconds / static_cast<double>(task.shape.batch * task.shape.seq)});
    break;
  }
  if (task.optimizer_state != "8bit") {
    PlanningTask small = task;
    small.optimizer_state = "8bit";
    try_task("8-bit optimizer state (--optimizer-state 8bit)", small);
  }
  if (task.budget.disk <= 0 && task.machine.disk_bytes > 0) {
    PlanningTask with_disk = task;
    with_disk.budget.disk = static_cast<double>(task.machine.disk_bytes) / 1e9;
    try_task("the machine's disk (--disk-memory " + format_bytes(task.machine.disk_bytes) + ")", with_disk);
  }
  for (PlanningTask shorter = task; shorter.shape.batch > 1;) {
    shorter.shape.batch /= 2;
    if (try_task(fmt::format("a batch of {} (--batch {})", shorter.shape.batch, shorter.shape.batch), shorter)) break;
  }
  for (PlanningTask shorter = task; shorter.shape.seq > kLeastSeq;) {
    shorter.shape.seq /= 2;
    if (try_task(fmt::format("a sequence of {} (--seq {})", shorter.shape.seq, shorter.shape.seq), shorter)) break;
  }
  const std::vector<hw::Profile> library = hw::library_profiles();
  const hw::Profile* larger = nullptr;  // the smallest machine of the library that is enough
  for (const hw::Profile& other : library) {
    if (larger && other.device_bytes + other.host_bytes >= larger->device_bytes + larger->host_bytes) continue;
    PlanningTask there = on_machine(task, other);
    there.shape.micro_batch = 1;
    if (quick_step(there)) larger = &other;
  }
  if (larger) {
    try_task(fmt::format("another machine (--profile {}: device {}, host {})", larger->name,
                         format_bytes(larger->device_bytes), format_bytes(larger->host_bytes)),
             on_machine(task, *larger));
  }
  return found;
}

// The state that must lie on the host or the disk, and what takes it.
std::string state_lines(const PlanningTask& task) {
  double weights = 0, state = 0, gradients = 0;
  const std::vector<int64_t> moments = optimizer_bytes(task.graph, task.optimizer_state);
  for (size_t u = 0; u < task.graph.units.size(); ++u) {
    const graph::Unit& unit = task.graph.units[u];
    weights += 4.0 * static_cast<double>(unit.block_elements);
    gradients += (task.compute == DType::kF32 ? 4.0 : 2.0) * static_cast<double>(unit.block_elements);
    state += static_cast<double>(moments[u]);
  }
  const double all = (weights + state + gradients) / 1e9, rooms = task.budget.host + task.budget.disk;
  std::string text =
      fmt::format("the model's state is {}: weights {}, optimizer state ({}) {}, gradients {}\n", gb(all),
                  gb(weights / 1e9), task.optimizer_state, gb(state / 1e9), gb(gradients / 1e9));
  if (all > rooms) {
    text = fmt::format("host{}: {} needed, {} allowed, {} short: ", task.budget.disk > 0 ? " and disk" : "", gb(all),
                       gb(rooms), gb(all - rooms)) +
           text;
  }
  return text;
}

std::string shortage_line(const PlanningTask& task) {
  PlanningTask least = task;
  least.shape.micro_batch = 1;
  const Instance instance = make_instance(least);
  if (instance.budget_gb.device <= 0) {
    return fmt::format(
        "device: {} short before a single layer's work: two slots of streamed weights and scratch take {} "
        "of {}\n",
        gb(-instance.budget_gb.device), gb(task.budget.device - instance.budget_gb.device), gb(task.budget.device));
  }
  if (instance.budget_gb.host <= 0) {
    return fmt::format("host: {} short: what must lie there takes {} of {}\n", gb(-instance.budget_gb.host),
                       gb(task.budget.host - instance.budget_gb.host), gb(task.budget.host));
  }
  const WindowSolution solution = solve_instance(instance, {.solver = "greedy", .time_limit_s = 0});
  if (!solution.shortage) return "";
  return fmt::format("{}: {} short: boundaries, retained sets and work of a step need {} of the {} left of {}\n",
                     name_of(solution.shortage->tier), gb(solution.shortage->lacking_gb),
                     gb(solution.shortage->needed_gb), gb(solution.shortage->budget_gb),
                     gb(solution.shortage->tier == Tier::kDevice ? task.budget.device
                        : solution.shortage->tier == Tier::kHost ? task.budget.host
                                                                 : task.budget.disk));
}

}  // namespace

void throw_infeasible(const PlanningTask& task) {
  std::string text = fmt::format("no plan of batch {}, seq {} fits {} (device {}, host {}, disk {})\n",
                                 task.shape.batch, task.shape.seq, task.machine.name, gb(task.budget.device),
                                 gb(task.budget.host), gb(task.budget.disk)) +
                     shortage_line(task) + state_lines(task);
  std::vector<Remedy> found = remedies(task);
  std::stable_sort(found.begin(), found.end(),
                   [](const Remedy& a, const Remedy& b) { return a.seconds_a_token < b.seconds_a_token; });
  if (found.empty()) {
    text += "Neither 8-bit state, a disk, a smaller batch or sequence nor any machine of the library is enough alone.";
  } else {
    text += "Any of these fits:";
    for (size_t i = 0; i < std::min(found.size(), kRemedies); ++i) {
      text += fmt::format("\n  {:<60} about {:.0f} tokens/s", found[i].change, 1 / found[i].seconds_a_token);
    }
  }
  throw Infeasible("{}", text);
}

}  // namespace lazytrain::plan
