#include "cli/planned.h"

#include <fmt/ranges.h>

#include <stdexcept>

#include "base/error.h"
#include "cli/compute.h"
#include "cli/machine.h"
#include "model/family.h"
#include "train/planning.h"

namespace lazytrain::cli {
namespace {

constexpr int64_t kMaxPlanBytes = int64_t{1} << 26;

}  // namespace

Planned planned_run(const graph::Graph& graph, const plan::Policy& policy, const plan::CompileOptions& options,
                    const hw::Profile& machine) {
  Planned planned;
  plan::CompileOptions here = options;
  here.machine = &machine;
  if (!machine.one_memory) here.scratch_bytes = {};  // those of the CPU's kernels
  planned.program = plan::compile(graph, policy, here);
  if (const auto faults = plan::validate(planned.program); !faults.empty()) {
    throw std::logic_error(
        fmt::format("plan '{}' compiles to an unsound program: {}", policy.name, fmt::join(faults, "; ")));
  }
  planned.timeline = plan::simulate(planned.program, plan::CostTable(graph, planned.program, machine));
  planned.program.policy.predicted_step_s = planned.timeline.step_s;
  return planned;
}

Json plan_file(const Planned& planned, const model::ModelConfig& config, const hw::Profile& machine) {
  Json json = plan::to_json(planned.program.policy);
  json["compute"] = planned.program.compute == DType::kF32 ? "fp32" : "bf16";
  json["profile"] = hw::to_json(machine);
  json["model_config"] = config.raw;
  return json;
}

LoadedPlan load_plan(const std::filesystem::path& file, const std::string& model, const std::string& profile) {
  const Json json = read_json(file, kMaxPlanBytes);
  const JsonObject object(json, file.string());
  const plan::Policy policy = plan::policy_from_json(json, file.string());
  if (model.empty() && !object.has("model_config")) {
    throw UsageError("{}: has no \"model_config\": say which model it is for with --model FOLDER_OR_CONFIG",
                     file.string());
  }
  const model::ModelConfig config = model.empty()
                                        ? model::parse_config(json.at("model_config"), file.string() + ": model_config")
                                        : model::load_config(model);
  LoadedPlan loaded;
  loaded.graph = model::build_graph(config);
  plan::check_against(policy, loaded.graph);
  const DType compute = parse_compute(object.string_or("compute", "bf16"), file.string() + ": compute");
  loaded.machine = profile.empty() && object.has("profile")
                       ? hw::profile_from_json(json.at("profile"), file.string() + ": profile")
                       : machine_of(profile.empty() ? "this" : profile, compute);
  loaded.planned = planned_run(loaded.graph, policy, compile_options(compute, train::threads_of({})), loaded.machine);
  return loaded;
}

}  // namespace lazytrain::cli
