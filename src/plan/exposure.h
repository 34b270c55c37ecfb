// What the compute lane waits for.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "hw/profile.h"
#include "plan/program.h"
#include "plan/timeline.h"

namespace lazytrain::plan {

struct Exposure {
  Lane lane = Lane::kHost;  // that the compute lane waits for
  double seconds = 0;       // a step
  int first_unit = 0;       // the units whose compute waits
  int last_unit = 0;
  double saved_s = 0;  // a step, if that lane were twice as fast
};

// Each gap of the compute lane, and the end of the step behind the last compute, is put down to the lanes of the chain
// of instructions that fills it, backwards from the one whose end closed it. Largest first; gaps below 0.1 % of the
// step together are left out.
std::vector<Exposure> exposures(const Program& program, const graph::Graph& graph, const Timeline& timeline,
                                const hw::Profile& machine);

}  // namespace lazytrain::plan
