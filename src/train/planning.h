// From a run's configuration to the program that will be executed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "graph/graph.h"
#include "hw/profile.h"
#include "plan/budget.h"
#include "plan/program.h"
#include "plan/timeline.h"
#include "runtime/cuda_card.h"
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
  std::shared_ptr<runtime::CudaCard> card;   // of device.kind: cuda; null: the CPU computes
  std::string emulation;                     // what is emulated, in lines; empty: nothing
};

// plan.policy `auto`: on one memory the fastest of `resident`, `megatrain` and, with a disk, the policies of
// plan/disk_policies.h that fits; on an emulated machine or a card the planner's. Otherwise a policy's name or the path
// of a plan.json. `pool` has the threads that will compute. Throws UsageError (a plan of another model, machine or
// shape), InputError, RunError (no card that can be used) or Infeasible.
PlannedRun plan_run(const RunConfig& config, const graph::Graph& graph, ThreadPool& pool);

// What a person sees of it: placement, memory by tier and purpose, predicted step time.
std::string describe(const PlannedRun& run, const graph::Graph& graph);

}  // namespace lazytrain::train
