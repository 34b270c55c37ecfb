// Solvers of mixed-integer programs behind one function: HiGHS is built in, SCIP is loaded where it is installed.
#pragma once

#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "plan/mip/mip.h"

namespace lazytrain::plan {

struct SolveOptions {
  std::string solver;         // highs, scip, greedy; empty: highs where it is built in, else greedy
  double time_limit_s = 60;   // wall clock; 0: whatever is known without a solver
  double gap = -1;            // relative; negative: the instance's
  double bound_s = 0;         // known from elsewhere: no plan is faster
  std::stop_token stop = {};  // asked for: as if the time limit were over
};

enum class MipStatus {
  kGapReached,  // `values` are within the gap of the bound
  kTimeLimit,   // `values` are the best so far, when there are any
  kInfeasible,  // proven
  kFault        // the solver gave up; `words` says how, `values` are the best so far
};

struct MipResult {
  MipStatus status = MipStatus::kTimeLimit;
  std::vector<double> values;  // by column; empty: no solution is known
  double objective = 0;        // of `values`
  double bound = 0;            // no solution has a smaller objective; -infinity when nothing is known
  double seconds = 0;
  std::string solver;
  std::string words;  // the solver's own, for the log
};

// Solves from a start (values of all columns, feasible; or empty). Never returns values that are worse than the start
// or that break the program by more than 1e-6. Returns within about a second of the time limit whatever the solver
// does: after that it goes on without it. Throws UsageError when the solver is not there, saying how to get it.
MipResult solve_mip(const Mip& mip, const std::vector<double>& start, const SolveOptions& options);

// The names that solve_mip knows; throws UsageError naming the nearest for any other.
std::vector<std::string> solver_names();
void check_solver_name(std::string_view name, std::string_view where);
// Throws UsageError when the solver is known but not there, saying how to get it.
void require_solver(std::string_view name);
bool has_highs();
// Path of the SCIP library that would be loaded; empty without one.
std::string scip_library();

}  // namespace lazytrain::plan
