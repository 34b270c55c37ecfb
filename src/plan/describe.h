// What a person sees of a plan, before anything runs.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/json.h"
#include "graph/graph.h"
#include "hw/profile.h"
#include "plan/budget.h"
#include "plan/program.h"
#include "plan/timeline.h"

namespace lazytrain::plan {

// The figures of one step. TFLOPS counts 6 N operations a token, N the parameters that a token is multiplied with
// (recomputation and attention not counted), so that plans of one model compare by time alone.
struct Figures {
  double step_s = 0;
  double exposed_s = 0;
  std::array<double, kLanes> busy_s = {};
  std::array<int64_t, 3> peak_bytes = {0, 0, 0};
  double tok_per_s = 0;
  double tflops = 0;
};
Figures figures_of(const Program& program, const graph::Graph& graph, const Timeline& timeline);
// {step_s, exposed_s, lanes: {NAME: {busy_s}}, peak_bytes: {device, host, disk}, tok_per_s, tflops}; lanes that do
// nothing are left out.
Json to_json(const Figures& figures);

// One letter a unit: what of its forward is still there when its backward begins.
enum class Kept : char {
  kRetained = 'K',    // the boundary before it and a retained set
  kCheckpoint = 'B',  // the boundary before it: its own ops are run again
  kNothing = 'r',     // nothing: the units since the last checkpoint are run again
  kRows = 'h',        // the embedding: rows gathered and scattered on the host, nothing kept
  kLoss = 'L'         // the head: loss and backward in one go
};
Kept kept_of(const Program& program, const graph::Graph& graph, int unit);

// Policy and shape, the placement map with its legend, the memory table by tier and purpose against its budgets, lanes,
// what the compute lane waits for, predicted step time, tokens/s and TFLOPS. Ends with a newline.
// `colour`: homes in the placement map of several memories in a terminal's colours.
std::string describe(const Program& program, const graph::Graph& graph, const Timeline& predicted,
                     const hw::Profile& machine, const Budgets& budgets, bool colour = false);

}  // namespace lazytrain::plan
