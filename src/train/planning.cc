#include "train/planning.h"

#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "plan/describe.h"
#include "plan/heuristics.h"
#include "runtime/executor.h"
#include "runtime/forward_loss.h"
#include "runtime/master_weights.h"
#include "runtime/probe.h"

namespace lazytrain::train {
namespace {

// A plan file fixes the shape of a step: it must be this run's.
plan::Policy read_policy(const std::filesystem::path& file, const graph::Graph& graph, const RunConfig& config,
                         const hw::Profile& machine) {
  const plan::Shape shape{config.batch, config.micro_batch, config.seq};
  const Json json = read_json(file);
  const JsonObject object(json, file.string());
  plan::Policy policy = plan::policy_from_json(json, file.string());
  plan::check_against(policy, graph);
  const std::string compute = config.compute == DType::kF32 ? "fp32" : "bf16";
  if (object.string_or("compute", compute) != compute) {
    throw InputError("{}: is for compute {}; this run has {}: make them equal", file.string(), object.string("compute"),
                     compute);
  }
  if (object.has("profile")) {
    const hw::Profile made_for = hw::profile_from_json(json.at("profile"), file.string() + ": profile");
    if (made_for.one_memory != machine.one_memory) {
      throw InputError(
          "{}: was made for {}, whose device and host are {}; here they are {}: make a plan for this machine with "
          "`lazytrain plan --profile this`",
          file.string(), made_for.name, made_for.one_memory ? "one memory" : "different memories",
          machine.one_memory ? "one memory" : "different memories");
    }
  }
  if (policy.batch != shape.batch || policy.micro_batch != shape.micro_batch || policy.seq != shape.seq) {
    throw InputError("{}: is for batch {}, micro_batch {}, seq {}; this run has {}, {}, {}: make them equal",
                     file.string(), policy.batch, policy.micro_batch, policy.seq, shape.batch, shape.micro_batch,
                     shape.seq);
  }
  return policy;
}

// A name of a policy wins over a file or folder that happens to be called so.
bool is_file(const std::string& policy) {
  const auto names = plan::policy_names();
  if (std::find(names.begin(), names.end(), policy) != names.end()) return false;
  return policy.ends_with(".json") || std::filesystem::is_regular_file(policy);
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

}  // namespace

PlannedRun plan_run(const RunConfig& config, const graph::Graph& graph, ThreadPool& pool) {
  const plan::Shape shape{config.batch, config.micro_batch, config.seq};
  const int threads = pool.threads();
  const plan::CompileOptions options{.compute = config.compute,
                                     .scratch_bytes = [threads](const graph::OpKind& kind, const graph::Dims& dims) {
                                       return runtime::Executor::scratch_bytes(kind, dims, threads);
                                     }};
  PlannedRun run;
  run.budgets = {
      .device = config.device.memory, .host = config.host_memory, .available = hw::available_memory(), .besides = 0};
  if (!config.data.eval.empty()) {
    const graph::Dims dims{config.micro_batch * config.seq, config.seq, size_of(config.compute)};
    run.budgets.besides = runtime::ForwardLoss::bytes_needed(graph, dims, config.compute, threads) +
                          runtime::MasterWeights::bytes_needed(graph, config.compute);
  }
  run.machine = runtime::measure_this_machine(pool, config.compute, true);
  if (config.policy == "auto") {
    run.program = compile_sound(graph, plan::resident(graph, shape), options);
    if (!plan::fits(run.program, run.budgets))
      run.program = compile_sound(graph, plan::megatrain(graph, shape), options);
  } else if (is_file(config.policy)) {
    run.program = compile_sound(graph, read_policy(config.policy, graph, config, run.machine), options);
  } else {
    run.program = compile_sound(graph, plan::named_policy(config.policy, graph, shape), options);
  }
  plan::check_budgets(graph, run.program, options, run.machine, run.budgets);
  run.predicted = plan::simulate(run.program, plan::CostTable(graph, run.program, run.machine));
  run.program.policy.predicted_step_s = run.predicted.step_s;
  return run;
}

std::string describe(const PlannedRun& run, const graph::Graph& graph) {
  return plan::describe(run.program, graph, run.predicted, run.machine, run.budgets);
}

int threads_of(const RunConfig& config) {
  if (config.device.threads > 0) return static_cast<int>(config.device.threads);
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace lazytrain::train
