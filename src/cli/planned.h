// A policy with its program, its predicted timeline and the plan.json that holds them together.
#pragma once

#include <filesystem>
#include <string>

#include "base/json.h"
#include "graph/graph.h"
#include "hw/profile.h"
#include "model/config.h"
#include "plan/program.h"
#include "plan/timeline.h"

namespace lazytrain::cli {

struct Planned {
  plan::Program program;
  plan::Timeline timeline;
};

// Compiles, proves the program sound and simulates it; the policy's predicted_step_s is set.
Planned planned_run(const graph::Graph& graph, const plan::Policy& policy, const plan::CompileOptions& options,
                    const hw::Profile& machine);

// What plan.json was made for.
struct LoadedPlan {
  graph::Graph graph;
  hw::Profile machine;
  Planned planned;
};
// `model` overrides the configuration in the file, `profile` its machine; both may be empty. A plan of a run has no
// profile: this machine is measured. Throws InputError, or UsageError when the plan is another model's, or nothing says
// which model it is.
LoadedPlan load_plan(const std::filesystem::path& file, const std::string& model, const std::string& profile);

}  // namespace lazytrain::cli
