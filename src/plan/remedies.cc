#include "plan/remedies.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
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

PlanningTask on_machine(const PlanningTask& task, const OtherMachine& other) {
  PlanningTask there{task.graph,           other.machine,      task.shape,  task.compute,
                     task.optimizer_state, task.scratch_bytes, other.budget};
  there.piece_elements = task.piece_elements;
  there.update_in_backward = task.update_in_backward;
  return there;
}

struct Remedy {
  std::string change;
  double seconds_a_token;
};

class Search {
 public:
  Search(const PlanningTask& task, bool any_micro_batch) : task_(task), any_micro_batch_(any_micro_batch) {}

  // The fastest first.
  std::vector<Remedy> run() {
    smaller_micro_batch();
    if (task_.optimizer_state != "8bit") {
      PlanningTask small = task_;
      small.optimizer_state = "8bit";
      attempt("8-bit optimizer state", setting("--optimizer-state", "optimizer.state", "8bit"), small);
    }
    disk();
    halve(&Shape::batch, 1, "a batch of {}", "--batch", "batch");
    halve(&Shape::seq, kLeastSeq, "a sequence of {}", "--seq", "seq");
    larger_machine();
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Remedy& a, const Remedy& b) { return a.seconds_a_token < b.seconds_a_token; });
    return std::move(found_);
  }

 private:
  std::string setting(std::string_view option, std::string_view key, std::string_view value) const {
    return task_.settings == Settings::kOptions ? fmt::format("{} {}", option, value)
                                                : fmt::format("{}={}", key, value);
  }

  // Where the micro-batch is the person's, a change alone comes first; then with sequences one by one.
  bool attempt(const std::string& what, const std::string& how, PlanningTask changed) {
    const int64_t own = std::min(changed.shape.micro_batch, changed.shape.batch);
    changed.shape.micro_batch = any_micro_batch_ ? 1 : own;
    auto seconds = quick_step(changed);
    std::string one_by_one;
    if (!seconds && changed.shape.micro_batch > 1) {
      changed.shape.micro_batch = 1;
      seconds = quick_step(changed);
      one_by_one = fmt::format(" {}", setting("--micro-batch", "micro_batch", "1"));
    }
    if (!seconds) return false;
    found_.push_back({fmt::format("{} ({}{})", what, how, one_by_one),
                      *seconds / static_cast<double>(changed.shape.batch * changed.shape.seq)});
    return true;
  }

  void smaller_micro_batch() {
    for (PlanningTask smaller = task_; smaller.shape.micro_batch > 1;) {
      smaller.shape.micro_batch /= 2;
      const auto seconds = quick_step(smaller);
      if (!seconds) continue;
      const std::string size = std::to_string(smaller.shape.micro_batch);
      found_.push_back({fmt::format("a micro-batch of {} ({})", size, setting("--micro-batch", "micro_batch", size)),
                        *seconds / static_cast<double>(task_.shape.batch * task_.shape.seq)});
      return;
    }
  }

  void disk() {
    if (task_.budget.disk > 0) return;
    if (task_.machine.disk_bytes > 0) {
      PlanningTask with = task_;
      with.budget.disk = static_cast<double>(task_.machine.disk_bytes) / 1e9;
      attempt("the machine's disk", setting("--disk-memory", "disk.memory", format_bytes(task_.machine.disk_bytes)),
              with);
    } else if (const auto other = task_.with_disk ? task_.with_disk() : std::nullopt) {
      attempt("a disk behind it", setting("--disk-memory", "disk.path", other->name), on_machine(task_, *other));
    }
  }

  // The largest half, quarter, ... that fits.
  void halve(int64_t Shape::*size, int64_t least, fmt::format_string<int64_t&> what, std::string_view option,
             std::string_view key) {
    for (PlanningTask smaller = task_; smaller.shape.*size > least;) {
      int64_t& value = smaller.shape.*size;
      value /= 2;
      if (attempt(fmt::format(what, value), setting(option, key, std::to_string(value)), smaller)) return;
    }
  }

  // The smallest machine that is enough, and not this one again.
  void larger_machine() {
    const std::vector<OtherMachine> others = task_.other_machines ? task_.other_machines() : library();
    const OtherMachine* best = nullptr;
    const auto bytes = [](const OtherMachine& m) { return m.machine.device_bytes + m.machine.host_bytes; };
    for (const OtherMachine& other : others) {
      if (best && bytes(other) >= bytes(*best)) continue;
      PlanningTask there = on_machine(task_, other);
      there.shape.micro_batch = 1;
      if (quick_step(there)) best = &other;
    }
    if (!best) return;
    attempt("another machine",
            fmt::format("{}: device {}, host {}", setting("--profile", "device.profile", best->name),
                        format_bytes(best->machine.device_bytes), format_bytes(best->machine.host_bytes)),
            on_machine(task_, *best));
  }

  std::vector<OtherMachine> library() const {
    std::vector<OtherMachine> others;
    for (const hw::Profile& m : hw::library_profiles()) {
      if (m.name != task_.machine.name) {
        others.push_back({m.name, m, tier_gb(m.device_bytes, m.host_bytes, m.disk_bytes)});
      }
    }
    return others;
  }

  const PlanningTask& task_;
  bool any_micro_batch_;
  std::vector<Remedy> found_;
};

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

void throw_infeasible(const PlanningTask& task, bool any_micro_batch) {
  std::string text = fmt::format("no plan of batch {}, seq {} fits {} (device {}, host {}, disk {})\n",
                                 task.shape.batch, task.shape.seq, task.machine.name, gb(task.budget.device),
                                 gb(task.budget.host), gb(task.budget.disk)) +
                     shortage_line(task) + state_lines(task);
  const std::vector<Remedy> found = Search(task, any_micro_batch).run();
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
