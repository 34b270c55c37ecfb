// A policy: where everything lives, what is kept and what is recomputed. Plain data with a JSON form that a person can
// read and edit; every named system is one (heuristics.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "graph/graph.h"
#include "plan/made_for.h"
#include "plan/words.h"

namespace lazytrain::plan {

// Boundary i is the hidden state between unit i and unit i + 1.
struct BoundaryPolicy {
  bool checkpoint = true;  // kept until its block's backward; otherwise recomputed from the checkpoint before it
  Tier home = Tier::kDevice;
  friend bool operator==(const BoundaryPolicy&, const BoundaryPolicy&) = default;
};

struct UnitPolicy {
  std::vector<std::string> retained;  // names of values kept from forward for backward
  Tier retained_home = Tier::kDevice;
  Tier weight_home = Tier::kHost;
  Tier optimizer_home = Tier::kHost;
  Tier gradient_home = Tier::kHost;  // host or disk; of weights on the device it is the device
  bool keep_weights = false;         // streamed weights stay on the device from forward to backward
  double early_update = 1;           // part of its update that backward does, under Policy::update_in_backward
  friend bool operator==(const UnitPolicy&, const UnitPolicy&) = default;
};

// As far as it is known: programs are compiled for a model, and most for a machine.
struct MadeFor {
  std::optional<ModelFacts> model;
  std::optional<MachineFacts> machine;
  friend bool operator==(const MadeFor&, const MadeFor&) = default;
};

struct Policy {
  std::string name;
  std::string model;  // graph fingerprint
  int64_t batch = 0;
  int64_t micro_batch = 0;
  int64_t seq = 0;
  std::vector<BoundaryPolicy> boundaries;  // units - 1
  std::vector<UnitPolicy> units;
  // As engines without slices do: run all of a unit's forward again, and the last unit of a block once more too.
  bool recompute_whole_unit = false;
  bool recompute_whole_block = false;
  // The update of unit u runs just before the next forward needs its weights; otherwise every update before any
  // forward.
  bool update_chases_forward = true;
  // Backward does the update of a unit, or the part early_update of it, as soon as its gradient is stored; the next
  // forward finds the rest as ever. For gradients that are not clipped: no update waits for their norm. What is on disk
  // waits for forward.
  bool update_in_backward = false;
  std::string optimizer_state = "fp32";  // optim::state_setting_from_name
  int weight_slots = 2;                  // units whose streamed weights are on the device at once
  int transfer_slack = 0;  // windows that boundaries and retained sets leave later and come back earlier than they must
  int gradient_buffers = 2;  // units whose gradients are on the device at once

  // How it was found. predicted_step_s is the simulator's figure for the compiled program.
  std::string solver = "none";
  double predicted_step_s = 0;
  double bound_s = 0;
  double gap = 0;
  MadeFor made_for;

  int64_t micro_batches() const { return (batch + micro_batch - 1) / micro_batch; }
  friend bool operator==(const Policy&, const Policy&) = default;
};

// How many micro-batches of that many units a program holds: it is compiled and checked in seconds.
int64_t most_micro_batches(size_t units);

Json to_json(const Policy& policy);
// Throws InputError naming the key; checks names and ranges, not the model.
Policy policy_from_json(const Json& json, const std::string& where);
// Throws UsageError saying what differs when the policy was made for another model, or when a step of it would be more
// than a program holds; InputError when it has another number of units than its model, or names what the model has not.
// `where` is its file, for messages; empty: none.
void check_against(const Policy& policy, const graph::Graph& graph, const std::string& where = "");
// In what the policy's model and that one differ: its figures, or that something else of its config.json does.
std::vector<std::string> model_differences(const Policy& policy, const graph::Graph& graph);

}  // namespace lazytrain::plan
