// From a run's configuration to the program that will be executed.
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "graph/graph.h"
#include "hw/profile.h"
#include "plan/budget.h"
#include "plan/measured.h"
#include "plan/program.h"
#include "plan/timeline.h"
#include "runtime/disk_store.h"
#include "runtime/lanes.h"
#include "runtime/throttle.h"
#include "train/run_config.h"

namespace lazytrain::train {

int threads_of(const RunConfig& config);  // device.threads, or the cores this process may run on

// An emulated machine's card and host have cores of their own, as far as there are two.
struct Workers {
  int compute = 1;           // threads of the compute lane
  int host = 0;              // of the host lane; 0: it shares the compute lane's
  runtime::LaneCores cores;  // where each lane runs
};
Workers workers_of(const RunConfig& config);

struct PlannedRun {
  plan::Program program;  // validated, within the budgets
  hw::Profile machine;
  plan::Timeline predicted;
  plan::Budgets budgets;
  std::optional<runtime::LaneRates> rates;   // of an emulated machine
  std::optional<runtime::DiskOptions> disk;  // where there is a disk tier
  std::string emulation;                     // what is emulated, in lines; empty: nothing
};

// plan.policy `auto`: on one memory the fastest of `resident`, `megatrain` and, with a disk, the policies of
// plan/disk_policies.h that fits; on an emulated machine the planner's. Otherwise a policy's name or the path of a
// plan.json. `pool` has the threads that will compute. Throws UsageError (a plan of another model, machine or shape),
// InputError or Infeasible.
PlannedRun plan_run(const RunConfig& config, const graph::Graph& graph, ThreadPool& pool);

// The same for a run that goes on: the machine and budgets of `run`, whose program does not matter, and the times that
// steps took; the micro-batch stays. Empty when nothing was found or `stop` was asked for. Throws what plan_run throws.
std::optional<PlannedRun> plan_again(const RunConfig& config, const graph::Graph& graph, const PlannedRun& run,
                                     int threads, const plan::Measurements& measured, std::stop_token stop);

// True when the program chose the plan and may choose another: plan.policy `auto`.
bool chooses_plan(const RunConfig& config);

// What a person sees of it: placement, memory by tier and purpose, predicted step time.
std::string describe(const PlannedRun& run, const graph::Graph& graph);

}  // namespace lazytrain::train
