// What happened, or what is predicted to happen: the simulator and the executor return the same type.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "hw/profile.h"
#include "plan/cost.h"
#include "plan/measured.h"
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

// How long each instruction takes on a machine: compute by cost.h plus the launch overhead of each instruction, updates
// and accumulation by the bandwidth of the memory they stream, transfers by their bytes over a link. Where it was
// measured, by how much longer it took.
class CostTable {
 public:
  CostTable(const graph::Graph& graph, const Program& program, const hw::Profile& profile);
  // Of the same program, model and machine as the analytic table.
  static CostTable measured(const graph::Graph& graph, const Program& program, const CostTable& analytic,
                            const Measurements& measurements);
  // Alone on the machine.
  double seconds(int instruction) const { return costs_[static_cast<size_t>(instruction)].seconds; }
  // True of transfers over h2d and d2h: they slow each other down to the joint limit.
  bool shares_link(int instruction) const { return costs_[static_cast<size_t>(instruction)].shares_link; }
  // What a link keeps of its rate while the other direction is busy too.
  double joint_share() const { return joint_share_; }

 private:
  struct Cost {
    double seconds = 0;
    bool shares_link = false;
  };
  std::vector<Cost> costs_;
  double joint_share_ = 1;
};

// Runs the lanes in order against the table: deterministic, the same list the executor runs. Device and host exchange
// at most the joint rate: while both directions are busy, each runs at its share of it.
Timeline simulate(const Program& program, const CostTable& costs);

}  // namespace lazytrain::plan
