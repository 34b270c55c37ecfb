// The order in which units are visited in a step: one window a visit, all micro-batches in it on the same weights.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "plan/policy.h"

namespace lazytrain::plan {

struct Window {
  Pass pass;  // kForward, kLoss, kBlockRecompute or kBackward
  int unit;
};

// Forward of all units, the loss, then block by block from the last: the recomputed units, and their backward.
std::vector<Window> windows_of(const Policy& policy, int units);

// The window in which unit `unit` has pass `pass`; -1 when there is none.
int window_of(const std::vector<Window>& windows, Pass pass, int unit);

// The first window behind the loss that reads boundary `boundary` (the output of unit `boundary`); -1: none does.
int return_window(const std::vector<Window>& windows, int boundary);

}  // namespace lazytrain::plan
