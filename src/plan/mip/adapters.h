// The solvers behind solve_mip, one function each.
#pragma once

#include <string>
#include <vector>

#include "plan/mip/solver.h"

namespace lazytrain::plan {

// As solve_mip, with a gap that is not negative, for a solver that is there (require_solver).
MipResult solve_with_highs(const Mip& mip, const std::vector<double>& start, const SolveOptions& options);
MipResult solve_with_scip(const Mip& mip, const std::vector<double>& start, const SolveOptions& options);

// What a solver gets beyond its limit to notice that it should stop.
inline constexpr double kGraceS = 0.5;

}  // namespace lazytrain::plan
