// What happened, or what is predicted to happen: the simulator and the executor return the same type.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "hw/profile.h"
#include "plan/program.h"

namespace lazytrain::plan {

struct Span {
  int instruction = 0;
  double start_s = 0;  // from the start of the step
  double end_s = 0;
};

struct Timeline {
  std::vector<Span> spans;
  double step_s = 0;
  std::array<int64_t, 3> peak_bytes = {0, 0, 0};  // by tier
};

struct LaneSummary {
  std::array<double, kLanes> busy_s = {};
  double exposed_s = 0;  // time in which the compute lane waits
};
LaneSummary summarize(const Program& program, const Timeline& timeline);

// Bytes a parameter that the update reads and writes: bf16 gradient, both weight halves, m and v. What a profile's
// host_bandwidth is measured against.
inline constexpr double kUpdateBytes = 26;

// How long each instruction takes on a machine: roofline per op (FLOPs over the sustained rate, bytes over bandwidth,
// whichever is longer) plus the launch overhead.
class CostTable {
 public:
  CostTable(const graph::Graph& graph, const Program& program, const hw::Profile& profile);
  double seconds(int instruction) const { return seconds_[static_cast<size_t>(instruction)]; }

 private:
  std::vector<double> seconds_;
};

// Runs the lanes in order against the table: deterministic, the same list the executor runs.
Timeline simulate(const Program& program, const CostTable& costs);

}  // namespace lazytrain::plan
