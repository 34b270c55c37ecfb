// In place of highs_solver.cc in builds without HiGHS.
#include <stdexcept>

#include "plan/mip/adapters.h"

namespace lazytrain::plan {

bool has_highs() { return false; }

MipResult solve_with_highs(const Mip&, const std::vector<double>&, const SolveOptions&) {
  throw std::logic_error("solve_with_highs without HiGHS: require_solver comes first");
}

}  // namespace lazytrain::plan
