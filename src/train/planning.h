// From a run's configuration to the program that will be executed.
#pragma once

#include "base/thread_pool.h"
#include "graph/graph.h"
#include "hw/profile.h"
#include "plan/budget.h"
#include "plan/program.h"
#include "plan/timeline.h"
#include "train/run_config.h"

namespace lazytrain::train {

struct PlannedRun {
  plan::Program program;  // validated, within the budgets
  hw::Profile machine;
  plan::Timeline predicted;
  plan::Budgets budgets;
};

// plan.policy `auto` takes `resident` when it fits and `megatrain` when not; a path is a plan.json. Throws UsageError,
// InputError (a plan of another model or shape) or Infeasible.
PlannedRun plan_run(const RunConfig& config, const graph::Graph& graph, ThreadPool& pool);

// What a person sees of it: placement, memory by tier and purpose, predicted step time.
std::string describe(const PlannedRun& run, const graph::Graph& graph);

int threads_of(const RunConfig& config);  // device.threads, or the cores this process may run on

}  // namespace lazytrain::train
