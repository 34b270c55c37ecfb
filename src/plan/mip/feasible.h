// Whether anything fits the budgets at all, by arithmetic.
#pragma once

#include <optional>
#include <vector>

#include "plan/mip/instance.h"
#include "plan/mip/solve.h"
#include "plan/mip/window_plan.h"

namespace lazytrain::plan {

struct Fit {
  std::optional<WindowChoices> choices;  // that fit, whatever they cost in time
  // Without choices: nothing fits. False where the search was cut short or does not know all ways to save memory (homes
  // on disk); then only a solver can say.
  bool is_proof = true;
};

// Finds choices that fit when there are any: over the units in order, the Pareto front of device, host and disk bytes
// of every way to store or drop the boundaries, with traffic that leaves at once and comes back at the last moment.
Fit find_fit(const Instance& instance);

// Where state may be on disk: choices that leave as much of it as possible in host memory, with a few units at home on
// the device, for searches to begin with: boundaries stay on the device as far as they fit, late ones first, and
// nothing is retained.
std::vector<WindowChoices> tight_fits(const Instance& instance);

// For an instance that nothing fits: which tier alone, and by how many GB, would have to be larger.
Shortage find_shortage(const Instance& instance);

}  // namespace lazytrain::plan
