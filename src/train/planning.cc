#include "train/planning.h"

#include <fmt/ranges.h>
#include <sched.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <stdexcept>

#include "base/error.h"
#include "base/json.h"
#include "base/units.h"
#include "hw/emulation.h"
#include "model/family.h"
#include "plan/describe.h"
#include "plan/disk_policies.h"
#include "plan/heuristics.h"
#include "plan/lazytrain_paper.h"
#include "plan/planner.h"
#include "plan/similarity.h"
#include "runtime/executor.h"
#include "runtime/forward_loss.h"
#include "runtime/master_weights.h"
#include "runtime/op_timing.h"
#include "runtime/probe.h"
#include "runtime/probe_disk.h"
#include "train/plan_file.h"

namespace lazytrain::train {
namespace {

bool emulates(const RunConfig& config) { return !config.device.profile.empty() || !config.device.like.empty(); }

// The cores that this process may run on.
std::vector<int> own_cores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<size_t>(core), &set)) cores.push_back(core);
  }
  return cores;
}

plan::Program compile_sound(const graph::Graph& graph, const plan::Policy& policy,
                            const plan::CompileOptions& options) {
  plan::Program program = plan::compile(graph, policy, options);
  if (const auto faults = plan::validate(program); !faults.empty()) {
    throw std::logic_error(
        fmt::format("plan '{}' compiles to an unsound program: {}", policy.name, fmt::join(faults, "; ")));
  }
  return program;
}

// A name of a policy wins over a file or folder that happens to be called so.
bool is_file(const std::string& policy) {
  const auto names = plan::step_names();
  if (std::find(names.begin(), names.end(), policy) != names.end()) return false;
  return policy.ends_with(".json") || std::filesystem::is_regular_file(policy);
}

// CONFIG@PROFILE@BATCHxSEQ
struct Like {
  std::string config, profile;
  plan::Shape shape;
};
Like parse_like(const std::string& text) {
  const auto first = text.find('@'), second = text.find('@', first + 1), by = text.find('x', second + 1);
  const auto refuse = [&]() {
    throw UsageError(
        "device.like: '{}' is not CONFIG@PROFILE@BATCHxSEQ, such as configs/qwen2.5-14b.json@h800-paper@96x1024",
        shown(text));
  };
  if (first == std::string::npos || second == std::string::npos || by == std::string::npos) refuse();
  Like like{text.substr(0, first), text.substr(first + 1, second - first - 1), {}};
  const auto number = [&](const std::string& digits) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 1) refuse();
    return value;
  };
  like.shape.batch = like.shape.micro_batch = number(text.substr(second + 1, by - second - 1));
  like.shape.seq = number(text.substr(by + 1));
  return like;
}

bool uses_disk(const plan::Policy& policy) {
  const auto on_disk = [](plan::Tier home) { return home == plan::Tier::kDisk; };
  return std::any_of(policy.boundaries.begin(), policy.boundaries.end(),
                     [&](const plan::BoundaryPolicy& b) { return on_disk(b.home); }) ||
         std::any_of(policy.units.begin(), policy.units.end(), [&](const plan::UnitPolicy& u) {
           return on_disk(u.retained_home) || on_disk(u.weight_home) || on_disk(u.optimizer_home) ||
                  on_disk(u.gradient_home);
         });
}

int64_t or_else(int64_t given, int64_t otherwise) { return given > 0 ? given : otherwise; }

class Planning {
 public:
  Planning(const RunConfig& config, const graph::Graph& graph, ThreadPool& pool, bool dry_run)
      : config_(config),
        graph_(graph),
        shape_{config.batch, config.micro_batch, config.seq},
        threads_(pool.threads()),
        dry_run_(dry_run) {
    run_.machine = runtime::measure_this_machine(pool, config.compute, true);
    if (emulates(config)) {
      time_ops(pool);
      emulate();
    }
    add_disk();
    set_budgets();
  }

  // Again, for the machine and budgets of `run`.
  Planning(const RunConfig& config, const graph::Graph& graph, const PlannedRun& run, int threads,
           const plan::Measurements& measured, std::stop_token stop)
      : config_(config),
        graph_(graph),
        shape_{config.batch, config.micro_batch, config.seq},
        threads_(threads),
        dry_run_(false),
        disk_is_known_(true),
        run_(run),
        measured_(&measured),
        stop_(std::move(stop)) {}

  PlannedRun run() {
    if (is_file(config_.plan.policy)) {
      take_file();
    } else if (run_.machine.one_memory) {
      choose_in_one_memory();
    } else {
      choose_within_this_machine();
    }
    check_budgets();
    return finished();
  }

  std::optional<PlannedRun> run_again() {
    run_.program = {};
    if (run_.machine.one_memory) {
      choose_in_one_memory();
    } else {
      plan::PlanningTask task = tiers_task();
      auto step = plan::find_step_with_disk(task, solve_options(), false);
      if (step) run_.program = std::move(step->program);
    }
    const bool found = !run_.program.instructions.empty() && plan::fits(run_.program, run_.budgets);
    if (stop_.stop_requested() || !found) return std::nullopt;
    return finished();
  }

 private:
  // What the emulated machine's host takes is what its profile says, whatever was measured.
  PlannedRun finished() {
    const plan::CostTable analytic(graph_, run_.program, run_.machine);
    if (run_.rates) run_.rates->host_seconds.clear();
    for (size_t i = 0; run_.rates && i < run_.program.instructions.size(); ++i) {
      run_.rates->host_seconds.push_back(analytic.seconds(static_cast<int>(i)));
    }
    run_.predicted = plan::simulate(run_.program, costs(run_.program));
    run_.program.policy.predicted_step_s = run_.predicted.step_s;
    return std::move(run_);
  }

  plan::CostTable costs(const plan::Program& program) const {
    plan::CostTable analytic(graph_, program, run_.machine);
    return measured_ ? plan::CostTable::measured(graph_, program, analytic, *measured_) : analytic;
  }

  // The emulated machine's compute is this one's, of which its links are a share: so it is measured, not estimated.
  void time_ops(ThreadPool& pool) {
    const Workers workers = workers_of(config_);
    std::optional<ThreadPool> own;
    if (workers.host > 0) own.emplace(workers.host);
    const graph::Dims dims{shape_.micro_batch * shape_.seq, shape_.seq, size_of(config_.compute)};
    run_.machine.ops = runtime::time_ops(graph_, dims, config_.compute, pool, own ? *own : pool);
  }

  void emulate() {
    const hw::Profile& here = here_ = run_.machine;
    if (!config_.device.profile.empty()) {
      const hw::Profile target = hw::find_profile(config_.device.profile);
      target_ = target.name;
      const hw::Emulation emulation = hw::emulate(target, here);
      run_.machine = emulation.machine;
      run_.emulation = hw::describe(emulation, target.name);
    } else {
      const Like like = parse_like(config_.device.like);
      const hw::Profile target = hw::find_profile(like.profile);
      const graph::Graph reference = model::build_graph(model::load_config(like.config));
      const plan::Similarity similar = plan::similar_machine({reference, target, like.shape}, graph_, shape_,
                                                             config_.compute, here, device_scratch());
      run_.machine = similar.emulation.machine;
      run_.emulation = fmt::format("{}; a layer's forward time is the measure of:\n{}",
                                   hw::describe(similar.emulation, target.name), plan::describe(similar));
    }
    emulated_disk_bytes_ = run_.machine.disk_bytes;
    run_.rates = runtime::LaneRates{run_.machine.links, {}};
    const Workers workers = workers_of(config_);
    if (config_.device.threads > workers.compute) {
      run_.emulation += fmt::format("\ndevice.threads: {} asked for, {} compute: one core stands for the host",
                                    config_.device.threads, workers.compute);
    }
  }

  // The most that any kernel of the card's ops needs.
  int64_t device_scratch() const {
    const graph::Dims dims{shape_.micro_batch * shape_.seq, shape_.seq, size_of(config_.compute)};
    int64_t most = 0;
    for (const graph::Unit& unit : graph_.units) {
      if (unit.kind == graph::UnitKind::kEmbedding) continue;  // on the host
      for (const graph::Op& op : unit.ops) {
        most = std::max(most, runtime::Executor::scratch_bytes(*op.kind, dims, threads_));
      }
    }
    return most;
  }

  // The disk tier is the folder that the run names, whatever machine is emulated: an emulated one has its rates.
  void add_disk() {
    int64_t& bytes = run_.machine.disk_bytes;
    if (config_.disk.path.empty()) {
      bytes = 0;
      return;
    }
    if (!std::filesystem::is_directory(config_.disk.path)) {
      throw UsageError("disk.path: there is no folder {}: make it, on the disk that shall be used",
                       config_.disk.path.string());
    }
    if (::access(config_.disk.path.c_str(), W_OK | X_OK) != 0) {
      throw UsageError("disk.path: no file can be made in {}: {}", config_.disk.path.string(), std::strerror(errno));
    }
    const int64_t room = runtime::free_disk_bytes(config_.disk.path);
    if (room == 0) {
      throw Infeasible("disk.path: the disk of {} is full: make room there, or name a folder on another one",
                       config_.disk.path.string());
    }
    if (!run_.rates) {
      run_.machine.links.disk_read = run_.machine.links.disk_write = kUnmeasuredDisk;
      bytes = room;
    }
    bytes = std::min({or_else(config_.disk.memory, room), room, bytes});
    run_.disk = runtime::DiskOptions{.folder = config_.disk.path, .verify = config_.disk.verify};
    run_.budgets.disk_in_memory = runtime::lies_in_memory(config_.disk.path);
    if (run_.budgets.disk_in_memory) {
      spdlog::warn("disk.path: {} lies in memory (tmpfs): what the plan keeps there is counted as host memory",
                   config_.disk.path.string());
    }
  }

  // Before the first plan with a disk is timed. With little where there is little room; not at all where there is next
  // to none, or on a dry run, which writes nothing. An emulated disk has the rates of its machine.
  void measure_disk() {
    if (run_.rates || !run_.disk || disk_is_known_) return;
    disk_is_known_ = true;
    if (dry_run_) {
      spdlog::info("disk.path: a dry run writes nothing, so the disk is not measured: taken for {}/s each way",
                   format_bytes(static_cast<int64_t>(kUnmeasuredDisk)));
      return;
    }
    const int64_t bytes = std::min(kDiskProbeBytes, runtime::free_disk_bytes(config_.disk.path) / 4);
    if (bytes < kLeastDiskProbe) return;
    const runtime::DiskRates here = runtime::measure_disk(config_.disk.path, bytes, kDiskProbeSeconds);
    run_.machine.links.disk_read = here.read;
    run_.machine.links.disk_write = here.write;
  }

  void set_budgets() {
    plan::Budgets& b = run_.budgets;
    b.available = hw::available_memory();
    b.process = kProcessBytes;
    if (!config_.data.eval.empty()) {
      const graph::Dims dims{config_.micro_batch * config_.seq, config_.seq, size_of(config_.compute)};
      b.evaluation = runtime::ForwardLoss::bytes_needed(graph_, dims, config_.compute, threads_) +
                     runtime::MasterWeights::bytes_needed(graph_, config_.compute, !run_.disk);
    }
    b.device = config_.device.memory;
    b.host = config_.host_memory;
    b.disk = run_.machine.disk_bytes;
    if (run_.machine.one_memory) return;
    b.device = or_else(b.device, run_.machine.device_bytes);
    b.host = std::min(or_else(b.host, run_.machine.host_bytes), b.available);
  }

  plan::CompileOptions options() const {
    return {.compute = config_.compute,
            .machine = &run_.machine,
            .scratch_bytes = [threads = threads_](const graph::OpKind& kind, const graph::Dims& dims) {
              return runtime::Executor::scratch_bytes(kind, dims, threads);
            }};
  }

  void take(const plan::Policy& policy) {
    if (uses_disk(policy)) measure_disk();
    run_.program = compile_sound(graph_, policy, options());
  }

  void take_file() {
    const PlanFile file = read_plan_file(config_.plan.policy);
    check_against(file, config_, graph_, run_.machine);
    file_made_for_ = file.policy.made_for.machine;
    take(file.policy);
  }

  // What a larger machine has room for does not fit here, and then that is what to say first.
  void check_budgets() const {
    const auto check = [&] { plan::check_budgets(graph_, run_.program, options(), run_.machine, run_.budgets); };
    const plan::MachineFacts here = plan::facts_of(run_.machine);
    if (!file_made_for_ || *file_made_for_ == here) return check();
    try {
      check();
    } catch (const Infeasible& error) {
      throw Infeasible("{}: {}\n{}", config_.plan.policy,
                       plan::difference("machine", plan::describe(*file_made_for_), plan::describe(here)),
                       error.what());
    }
  }

  plan::Policy with_state(plan::Policy policy) const {
    policy.optimizer_state = config_.optimizer.state;
    return policy;
  }

  // The fastest of those that fit; when none does, the least demanding one, for check_budgets to speak of.
  void choose_in_one_memory() {
    const std::vector<plan::Policy> with_disk = plan::disk_policies(graph_, shape_);
    for (const plan::Policy& policy : with_disk) {
      if (policy.name == config_.plan.policy) return take(with_state(policy));
    }
    if (config_.plan.policy == "lazytrain" || config_.plan.policy == plan::kPaperPolicy) {
      throw UsageError(
          "plan.policy: '{}' plans machines whose device and host are apart (device.profile, device.like); here they "
          "are one memory: `auto` takes the fastest policy that fits",
          config_.plan.policy);
    }
    if (config_.plan.policy != "auto") return take(with_state(plan::named_policy(config_.plan.policy, graph_, shape_)));
    take(with_state(plan::resident(graph_, shape_)));
    if (plan::fits(run_.program, run_.budgets)) return;  // nothing is run again, and nothing waits
    std::vector<plan::Policy> policies = {plan::resident(graph_, shape_), plan::megatrain(graph_, shape_)};
    if (run_.machine.disk_bytes > 0) {
      measure_disk();
      policies.insert(policies.end(), with_disk.begin(), with_disk.end());
    }
    double best = 0;
    int64_t least = 0;
    for (const plan::Policy& policy : policies) {
      if (stop_.stop_requested()) return;
      plan::Program program = compile_sound(graph_, with_state(policy), options());
      const int64_t bytes = program.tier_bytes[0] + program.tier_bytes[1];
      const bool fits = plan::fits(program, run_.budgets);
      if (!fits && (best > 0 || (least > 0 && bytes >= least))) continue;
      least = bytes;
      const double seconds = plan::simulate(program, costs(program)).step_s;
      if (fits && best > 0 && seconds >= best) continue;
      run_.program = std::move(program);
      if (fits) best = seconds;
    }
  }

  // Machines of the library emulated in this one's place, within the run's caps. By likeness (device.like) each would
  // be scaled to this one's step: none is another.
  std::vector<plan::OtherMachine> other_machines() const {
    std::vector<plan::OtherMachine> others;
    if (config_.device.profile.empty()) return others;
    for (const hw::Profile& profile : hw::library_profiles()) {
      if (profile.one_memory || profile.name == target_) continue;
      try {
        hw::Profile machine = hw::emulate(profile, here_).machine;
        machine.disk_bytes = run_.machine.disk_bytes;
        others.push_back({profile.name, machine, budget_on(machine)});
      } catch (const UsageError&) {  // this machine is too slow to be it
      }
    }
    return others;
  }

  std::optional<plan::OtherMachine> with_disk() const {
    if (!config_.disk.path.empty() || emulated_disk_bytes_ == 0) return std::nullopt;
    plan::OtherMachine other{"FOLDER", run_.machine, {}};
    other.machine.disk_bytes = emulated_disk_bytes_;
    other.budget = budget_on(other.machine);
    return other;
  }

  plan::TierGb budget_on(const hw::Profile& machine) const {
    const int64_t host = std::min(or_else(config_.host_memory, machine.host_bytes), run_.budgets.available);
    return plan::tier_gb(or_else(config_.device.memory, machine.device_bytes), host - run_.budgets.besides(),
                         machine.disk_bytes);
  }

  plan::PlanningTask tiers_task() const {
    return {.graph = graph_,
            .machine = run_.machine,
            .shape = shape_,
            .compute = config_.compute,
            .optimizer_state = config_.optimizer.state,
            .scratch_bytes = options().scratch_bytes,
            .budget = plan::tier_gb(run_.budgets.device, run_.budgets.host - run_.budgets.besides(), 0),
            .measured = measured_};
  }

  plan::SolveOptions solve_options() const {
    return {.solver = config_.plan.solver == "auto" ? "" : config_.plan.solver,
            .time_limit_s = config_.plan.time_limit_s,
            .gap = config_.plan.gap,
            .stop = stop_};
  }

  // An emulated card and its host share this machine's memory. When a plan within both of their sizes does not fit it,
  // there is another one for a card of what is left, which is said.
  void choose_within_this_machine() {
    plan::Budgets& b = run_.budgets;
    const int64_t card = b.device;
    choose_on_tiers();
    for (int round = 0; round < kFewerBytes; ++round) {
      const int64_t device = run_.program.tier_bytes[0], host = run_.program.tier_bytes[1];
      const int64_t over = device + host + b.besides() - b.available;
      if (over <= 0) break;
      const int64_t less = device - over - over / 16;
      if (less <= 0) break;
      b.device = less;
      choose_on_tiers();
    }
    if (b.device == card) return;
    run_.emulation +=
        fmt::format("\nmemory here, {} available, holds {} of the card's {} beside its host: planned with that",
                    format_bytes(b.available), format_bytes(b.device), format_bytes(card));
  }

  void choose_on_tiers() {
    plan::PlanningTask task = tiers_task();
    task.settings = plan::Settings::kKeys;
    task.other_machines = [this] { return other_machines(); };
    task.with_disk = [this] { return with_disk(); };
    const bool planner = config_.plan.policy == "auto" || config_.plan.policy == "lazytrain";
    if (planner) {
      run_.program = plan::plan_step_with_disk(task, solve_options(), false).program;
      return;
    }
    task.budget.disk = static_cast<double>(run_.budgets.disk) / 1e9;
    if (auto step = plan::named_step(task, config_.plan.policy, false)) {
      run_.program = std::move(step->program);
    } else {
      take(with_state(plan::named_policy(config_.plan.policy, graph_, shape_)));
    }
  }

  static constexpr int kFewerBytes = 4;  // plans made again for less
  static constexpr int64_t kDiskProbeBytes = int64_t{256} << 20;
  // The program, its libraries, samples and staging: 45 to 60 MB were measured beside plans of 0.2 to 2 GB.
  static constexpr int64_t kProcessBytes = int64_t{64} << 20;
  static constexpr int64_t kLeastDiskProbe = int64_t{8} << 20;
  static constexpr double kDiskProbeSeconds = 0.5;
  static constexpr double kUnmeasuredDisk = 5e8;  // bytes a second, of any SSD

  const RunConfig& config_;
  const graph::Graph& graph_;
  plan::Shape shape_;
  int threads_;
  bool dry_run_;
  bool disk_is_known_ = false;
  PlannedRun run_;
  hw::Profile here_;    // as measured, where another machine is emulated
  std::string target_;  // that machine, by device.profile
  int64_t emulated_disk_bytes_ = 0;
  std::optional<plan::MachineFacts> file_made_for_;  // of plan.policy, where it is a file
  const plan::Measurements* measured_ = nullptr;     // null: the analytic costs
  std::stop_token stop_;
};

}  // namespace

PlannedRun plan_run(const RunConfig& config, const graph::Graph& graph, ThreadPool& pool, bool dry_run) {
  return Planning(config, graph, pool, dry_run).run();
}

std::optional<PlannedRun> plan_again(const RunConfig& config, const graph::Graph& graph, const PlannedRun& run,
                                     int threads, const plan::Measurements& measured, std::stop_token stop) {
  return Planning(config, graph, run, threads, measured, std::move(stop)).run_again();
}

bool chooses_plan(const RunConfig& config) { return config.plan.policy == "auto"; }

std::string describe(const PlannedRun& run, const graph::Graph& graph) {
  const std::string plan = plan::describe(run.program, graph, run.predicted, run.machine, run.budgets);
  return run.emulation.empty() ? plan : fmt::format("{}\n{}", run.emulation, plan);
}

int threads_of(const RunConfig& config) {
  if (config.device.threads > 0) return static_cast<int>(config.device.threads);
  return std::max(1, static_cast<int>(own_cores().size()));
}

Workers workers_of(const RunConfig& config) {
  const std::vector<int> cores = own_cores();
  Workers workers{.compute = threads_of(config), .host = 0, .cores = {}};
  if (!emulates(config) || cores.size() < 2) return workers;
  workers.compute = std::min(workers.compute, static_cast<int>(cores.size()) - 1);
  workers.host = 1;
  for (size_t lane = 0; lane < workers.cores.size(); ++lane) {
    const bool compute = static_cast<plan::Lane>(lane) == plan::Lane::kCompute;
    workers.cores[lane] = compute ? std::vector<int>(cores.begin(), cores.end() - 1) : std::vector<int>{cores.back()};
  }
  return workers;
}

}  // namespace lazytrain::train
