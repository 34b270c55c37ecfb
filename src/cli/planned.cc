#include "cli/planned.h"

#include <fmt/ranges.h>

#include <stdexcept>

#include "base/error.h"
#include "cli/compute.h"
#include "cli/machine.h"
#include "model/family.h"
#include "train/plan_file.h"
#include "train/planning.h"

namespace lazytrain::cli {

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

LoadedPlan load_plan(const std::filesystem::path& path, const std::string& model, const std::string& profile) {
  const train::PlanFile file = train::read_plan_file(path);
  if (model.empty() && file.model_config.is_null()) {
    throw UsageError("{}: has no \"model_config\": say which model it is for with --model FOLDER_OR_CONFIG",
                     path.string());
  }
  const model::ModelConfig config = model.empty()
                                        ? model::parse_config(file.model_config, path.string() + ": model_config")
                                        : model::load_config(model);
  LoadedPlan loaded;
  loaded.graph = model::build_graph(config);
  plan::check_against(file.policy, loaded.graph, path.string());
  const DType compute = parse_compute(file.compute.empty() ? "bf16" : file.compute, path.string() + ": compute");
  loaded.machine =
      profile.empty() && file.machine ? *file.machine : machine_of(profile.empty() ? "this" : profile, compute);
  loaded.planned =
      planned_run(loaded.graph, file.policy, compile_options(compute, train::threads_of({})), loaded.machine);
  return loaded;
}

}  // namespace lazytrain::cli
