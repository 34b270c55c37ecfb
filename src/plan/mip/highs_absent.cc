// In place of highs_solver.cc in builds without HiGHS.
#include "base/error.h"
#include "plan/mip/adapters.h"

namespace lazytrain::plan {

bool has_highs() { return false; }

MipResult solve_with_highs(const Mip&, const std::vector<double>&, double, double) {
  throw UsageError(
      "solver: this program was built without HiGHS. Run scripts/setup.sh and scripts/build.sh again with a network, "
      "or "
      "take solver greedy (or scip where it is installed).");
}

}  // namespace lazytrain::plan
