// plan.json: a policy, and beside it what it was made for: "compute", "profile" (the machine) and "model_config".
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"
#include "graph/graph.h"
#include "hw/profile.h"
#include "model/config.h"
#include "plan/program.h"
#include "train/run_config.h"

namespace lazytrain::train {

struct PlanFile {
  std::filesystem::path path;
  plan::Policy policy;
  std::string compute;                 // empty: the file does not say
  std::optional<hw::Profile> machine;  // none: the file does not say
  Json model_config;                   // null: the file does not say
};

// The text of plan.json.
std::string plan_file_text(const plan::Program& program, const model::ModelConfig& config, const hw::Profile& machine);

// Throws InputError. Files from before plans knew their model and machine are read with what stands beside the policy.
PlanFile read_plan_file(const std::filesystem::path& path);

// Throws UsageError with everything in which the plan's model, shape, types and kind of machine are not the run's, or
// where it does what no training step may.
void check_against(const PlanFile& plan, const RunConfig& config, const graph::Graph& graph,
                   const hw::Profile& machine);

}  // namespace lazytrain::train
