// From a model on a machine to an instance of the planning problem, and from its solution to a policy.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "hw/profile.h"
#include "plan/heuristics.h"
#include "plan/measured.h"
#include "plan/mip/instance.h"
#include "plan/mip/window_plan.h"
#include "plan/program.h"

namespace lazytrain::plan {

// Bytes as GB.
inline TierGb tier_gb(int64_t device, int64_t host, int64_t disk) {
  return {static_cast<double>(device) / 1e9, static_cast<double>(host) / 1e9, static_cast<double>(disk) / 1e9};
}

// What a person may change, as remedies call it: options of `lazytrain plan`, or keys of a run's configuration.
enum class Settings : uint8_t { kOptions, kKeys };

// A machine that could be planned for instead.
struct OtherMachine {
  std::string name;  // as the setting takes it
  hw::Profile machine;
  TierGb budget;
};

// What a step is planned for.
struct PlanningTask {
  const graph::Graph& graph;
  const hw::Profile& machine;  // of several memories
  Shape shape;
  DType compute = DType::kBF16;
  std::string optimizer_state = "fp32";
  std::function<int64_t(const graph::OpKind&, const graph::Dims&)> scratch_bytes;  // as in CompileOptions
  TierGb budget;  // GB (1e9 bytes) that everything on a tier may take
  // What steps of this model took on this machine; null: the analytic costs. Outlives the task.
  const Measurements* measured = nullptr;
  int64_t piece_elements = kPieceElements;  // as in CompileOptions
  bool update_in_backward = false;          // gradients are not clipped: their updates wait for no norm
  Settings settings = Settings::kOptions;
  // What remedies may name: other machines; empty: those of the library. And this one with a disk that it could have.
  std::function<std::vector<OtherMachine>()> other_machines = {};
  std::function<std::optional<OtherMachine>()> with_disk = {};
  // What a part of the planner is worth: false plans without it.
  bool retained_sets = true;
  bool chase = true;  // forward behind the update of its own unit, not of all
};

// Unit j of the instance is layer j of the graph. Static buffers are taken off the budgets: on the device two slots of
// streamed weights and the kernels' scratch, with the head's weights, gradients and loss in the windows beside it; on
// the host the embedding, the head, stored gradients and, when nothing of them may go to disk, all layers' state. Every
// estimate errs to the larger side: the compiled program decides whether a plan fits.
Instance make_instance(const PlanningTask& task);

// Boundary i of the instance is the output of graph unit i. Under update_in_backward a layer's early_update is what
// backward hides of its update; embedding and head wait for forward, as the instance has it.
Policy make_policy(const PlanningTask& task, const Instance& instance, const WindowChoices& choices);

}  // namespace lazytrain::plan
