#include "plan/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "plan/disk_policies.h"
#include "plan/heuristics.h"
#include "plan/timeline.h"

namespace lazytrain::plan {
namespace {

constexpr size_t kRemedies = 3;
constexpr int64_t kLeastSeq = 16;  // nobody trains on less

int64_t bytes_on(const Program& program, Tier tier) { return program.tier_bytes[static_cast<size_t>(tier)]; }
int64_t total(const Program& program) { return bytes_on(program, Tier::kDevice) + bytes_on(program, Tier::kHost); }

// Bytes over a limit; 0 when there is none or it holds.
int64_t over(int64_t need, int64_t limit) { return limit > 0 ? std::max<int64_t>(0, need - limit) : 0; }

// Beside device and host: what is no tier of the program, and a disk that is memory.
int64_t besides(const Program& program, const Budgets& b) {
  return b.besides() + (b.disk_in_memory ? bytes_on(program, Tier::kDisk) : 0);
}

// host.memory is a cap on everything that the run takes of the host: in one memory, of all but the disk.
int64_t on_host(const Program& program, const Budgets& b) {
  return (program.one_memory ? total(program) : bytes_on(program, Tier::kHost)) + besides(program, b);
}

int64_t shortfall(const Program& program, const Budgets& b) {
  return std::max({over(bytes_on(program, Tier::kDevice), b.device), over(on_host(program, b), b.host),
                   over(bytes_on(program, Tier::kDisk), b.disk),
                   over(total(program) + besides(program, b), b.available)});
}

// "retained 4.1 GB, optimizer state 1.2 GB": the rows of these tiers, largest first.
std::string breakdown(const Program& program, const std::vector<Tier>& tiers) {
  std::vector<MemoryRow> rows = memory_table(program);
  std::erase_if(rows,
                [&](const MemoryRow& row) { return std::find(tiers.begin(), tiers.end(), row.tier) == tiers.end(); });
  std::sort(rows.begin(), rows.end(), [](const MemoryRow& a, const MemoryRow& b) { return a.bytes > b.bytes; });
  std::string text;
  for (const MemoryRow& row : rows) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(row.purpose), format_bytes(row.bytes));
  }
  return text;
}

std::string lacking(const Program& program, const Budgets& b) {
  std::string text;
  std::string outside;
  if (b.evaluation > 0) outside += fmt::format(", evaluation {}", format_bytes(b.evaluation));
  if (b.process > 0) outside += fmt::format(", the process itself {}", format_bytes(b.process));
  if (b.disk_in_memory) {
    outside += fmt::format(", disk.path, which lies in memory, {}", format_bytes(bytes_on(program, Tier::kDisk)));
  }
  const auto line = [&](std::string_view what, int64_t need, int64_t limit, std::string_view key,
                        const std::vector<Tier>& tiers) {
    if (over(need, limit) == 0) return;
    text += fmt::format("{}{}: {} needed, {} allowed ({}), {} short: {}", text.empty() ? "" : "\n", what,
                        format_bytes(need), format_bytes(limit), key, format_bytes(need - limit),
                        breakdown(program, tiers));
    if (std::find(tiers.begin(), tiers.end(), Tier::kHost) != tiers.end()) text += outside;
  };
  const std::vector<Tier> both = {Tier::kDevice, Tier::kHost};
  line("device", bytes_on(program, Tier::kDevice), b.device, "device.memory", {Tier::kDevice});
  line("host", on_host(program, b), b.host, "host.memory", program.one_memory ? both : std::vector<Tier>{Tier::kHost});
  line("disk", bytes_on(program, Tier::kDisk), b.disk, "disk.memory", {Tier::kDisk});
  line("device and host, one memory here", total(program) + besides(program, b), b.available, "available", both);
  return text;
}

struct Remedy {
  std::string change;
  Program program;
  double seconds_a_token = 0;
};

class RemedySearch {
 public:
  RemedySearch(const graph::Graph& graph, const Program& program, const CompileOptions& options,
               const hw::Profile& machine, const Budgets& budgets)
      : graph_(graph), policy_(program.policy), options_(options), machine_(machine), budgets_(budgets) {
    own_seconds_ = seconds_a_token(program);
    least_ = shortfall(program, budgets);
  }

  // Fastest first.
  std::vector<Remedy> run() {
    shrink(policy_, "");
    halve("seq", &Policy::seq, policy_, "");
    for (const std::string& name : policy_names()) {
      if (name == policy_.name) continue;
      Policy other = named_policy(name, graph_, {policy_.batch, policy_.micro_batch, policy_.seq});
      other.optimizer_state = policy_.optimizer_state;
      const std::string change = fmt::format("plan.policy={}", name);
      if (!try_policy(change, other)) shrink(other, change + " ");
    }
    if (options_.machine != nullptr && options_.machine->one_memory && options_.machine->disk_bytes > 0) {
      std::vector<Policy> with_disk = disk_policies(graph_, {policy_.batch, policy_.micro_batch, policy_.seq});
      for (Policy& other : with_disk) {
        if (other.name == policy_.name) continue;
        other.optimizer_state = policy_.optimizer_state;
        const std::string change = fmt::format("plan.policy={}", other.name);
        if (!try_policy(change, other)) shrink(other, change + " ");
      }
    }
    std::sort(found_.begin(), found_.end(),
              [](const Remedy& a, const Remedy& b) { return a.seconds_a_token < b.seconds_a_token; });
    return std::move(found_);
  }

  // What a disk behind the one memory would make of it: the first policy that fits then.
  std::optional<Program> with_a_disk() const {
    const bool has = options_.machine != nullptr && options_.machine->disk_bytes > 0;
    if (has || !machine_.one_memory) return std::nullopt;
    hw::Profile machine = machine_;
    machine.disk_bytes = int64_t{1} << 50;
    machine.links.disk_read = machine.links.disk_write = 1e9;  // orders transfers; no time is promised
    CompileOptions options = options_;
    options.machine = &machine;
    for (Policy policy : disk_policies(graph_, {policy_.batch, policy_.micro_batch, policy_.seq})) {
      policy.optimizer_state = policy_.optimizer_state;
      Program program = compile(graph_, policy, options);
      Budgets budgets = budgets_;
      budgets.disk = 0;
      if (fits(program, budgets)) return program;
    }
    return std::nullopt;
  }

  double own_seconds() const { return own_seconds_; }
  int64_t least_shortfall() const { return least_; }

 private:
  double seconds_a_token(const Program& program) const {
    const Timeline timeline = simulate(program, CostTable(graph_, program, machine_));
    return timeline.step_s / static_cast<double>(program.policy.batch * program.policy.seq);
  }

  bool try_policy(const std::string& change, const Policy& policy) {
    try {
      check_against(policy, graph_);
    } catch (const UsageError&) {
      return false;  // too many micro-batches for a program
    }
    Program program = compile(graph_, policy, options_);
    least_ = std::min(least_, shortfall(program, budgets_));
    if (!fits(program, budgets_)) return false;
    const double seconds = seconds_a_token(program);
    found_.push_back({change, std::move(program), seconds});
    return true;
  }

  // The largest half, quarter, ... of a size that fits.
  bool halve(std::string_view key, int64_t Policy::*size, Policy policy, std::string_view prefix) {
    const int64_t least = size == &Policy::seq ? kLeastSeq : 1;
    for (int64_t value = policy.*size / 2; value >= least; value /= 2) {
      policy.*size = value;
      if (try_policy(fmt::format("{}{}={}", prefix, key, value), policy)) return true;
    }
    return false;
  }

  // A smaller micro-batch, or when one sequence is too much, a shorter one.
  void shrink(Policy policy, const std::string& prefix) {
    if (halve("micro_batch", &Policy::micro_batch, policy, prefix)) return;
    policy.micro_batch = 1;
    halve("seq", &Policy::seq, policy, prefix + "micro_batch=1 ");
  }

  const graph::Graph& graph_;
  const Policy& policy_;
  const CompileOptions& options_;
  const hw::Profile& machine_;
  const Budgets& budgets_;
  double own_seconds_ = 0;
  int64_t least_ = 0;
  std::vector<Remedy> found_;
};

std::string remedies(RemedySearch search) {
  const std::vector<Remedy> found = search.run();
  std::string disk;
  if (const auto program = search.with_a_disk()) {
    disk = fmt::format("\n  {:<40} memory {}, and {} of a disk, whose speed decides the time",
                       "disk.path=FOLDER plan.policy=" + program->policy.name, format_bytes(total(*program)),
                       format_bytes(bytes_on(*program, Tier::kDisk)));
  }
  if (found.empty() && !disk.empty()) return "\nThis fits:" + disk;
  if (found.empty()) {
    return fmt::format(
        "\nNo smaller micro_batch or seq and no other policy is enough; the nearest lacks {}. "
        "A smaller model, or more memory, is needed.",
        format_bytes(search.least_shortfall()));
  }
  std::string text = "\nAny of these fits:";
  for (size_t i = 0; i < std::min(found.size(), kRemedies); ++i) {
    text += fmt::format("\n  {:<40} device {}, host {}, {:+.0f}% time a token", found[i].change,
                        format_bytes(bytes_on(found[i].program, Tier::kDevice)),
                        format_bytes(bytes_on(found[i].program, Tier::kHost)),
                        100 * (found[i].seconds_a_token / search.own_seconds() - 1));
  }
  return text + disk;
}

}  // namespace

bool fits(const Program& program, const Budgets& budgets) { return shortfall(program, budgets) == 0; }

void check_budgets(const graph::Graph& graph, const Program& program, const CompileOptions& options,
                   const hw::Profile& machine, const Budgets& budgets) {
  if (fits(program, budgets)) return;
  const Policy& policy = program.policy;
  throw Infeasible("plan '{}' (batch {}, micro_batch {}, seq {}) does not fit\n{}{}", policy.name, policy.batch,
                   policy.micro_batch, policy.seq, lacking(program, budgets),
                   remedies(RemedySearch(graph, program, options, machine, budgets)));
}

}  // namespace lazytrain::plan
