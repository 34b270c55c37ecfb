#include "plan/mip/solver.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "plan/mip/adapters.h"

namespace lazytrain::plan {
namespace {

constexpr double kTolerance = 5e-6;  // the solvers' own feasibility tolerance, with room for its sums

}  // namespace

std::vector<std::string> solver_names() { return {"highs", "scip", "greedy"}; }

void check_solver_name(std::string_view name, std::string_view where) {
  const auto names = solver_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  const std::string near = nearest(name, names);
  throw UsageError("{}: '{}' is no solver{}; known are {}", where, shown(name),
                   near.empty() ? "" : fmt::format(", did you mean '{}'?", near), fmt::join(names, ", "));
}

void require_solver(std::string_view name) {
  if (name == "highs" && !has_highs()) {
    throw UsageError(
        "solver: this program was built without HiGHS. Run scripts/setup.sh and scripts/build.sh again where Python's "
        "packages can be fetched, or take solver greedy, or scip where it is installed.");
  }
  if (name == "scip" && scip_library().empty()) {
    throw UsageError(
        "solver: SCIP is not installed. Run scripts/setup.sh, or name its library in the environment variable "
        "LAZYTRAIN_SCIP, or take solver highs.");
  }
}

MipResult solve_mip(const Mip& mip, const std::vector<double>& start, const SolveOptions& options) {
  const std::string solver = !options.solver.empty() ? options.solver : has_highs() ? "highs" : "greedy";
  check_solver_name(solver, "solver");
  require_solver(solver);
  SolveOptions asked = options;
  asked.gap = std::max(0.0, options.gap);
  MipResult result;
  result.solver = solver;
  result.values = start;
  result.bound = -kInfinity;
  if (solver == "highs") result = solve_with_highs(mip, start, asked);
  if (solver == "scip") result = solve_with_scip(mip, start, asked);
  // What a solver calls a solution is one only when it is.
  if (!result.values.empty() && mip.max_violation(result.values) > kTolerance) {
    result.words += "; its solution breaks the program";
    result.status = MipStatus::kFault;
    result.values = start;
  }
  if (!start.empty() && !result.values.empty() && mip.objective(result.values) > mip.objective(start))
    result.values = start;
  if (!result.values.empty()) result.objective = mip.objective(result.values);
  return result;
}

}  // namespace lazytrain::plan
