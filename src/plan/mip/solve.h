// From an instance to a plan.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "plan/mip/instance.h"
#include "plan/mip/solver.h"
#include "plan/mip/window_plan.h"

namespace lazytrain::plan {

enum class WindowStatus {
  kOptimal,    // within the gap
  kTimeLimit,  // a plan, but the time ended before the gap was reached
  kFeasible,   // a plan of the greedy rule, which proves no gap
  kInfeasible  // no plan fits the budgets
};
std::string_view name_of(WindowStatus status);  // "optimal", "time_limit", "feasible", "infeasible"

// What the tightest tier would need more of, everything else as it is.
struct Shortage {
  Tier tier = Tier::kDevice;
  double lacking_gb = 0;
  double needed_gb = 0;
  double budget_gb = 0;
};

struct WindowSolution {
  WindowStatus status = WindowStatus::kInfeasible;
  std::optional<WindowPlan> plan;  // empty when infeasible
  double step_s = 0;
  double bound_s = 0;  // no plan is faster
  double gap = 0;      // (step_s - bound_s) / step_s
  std::string solver;  // which was asked last: greedy when the greedy rule's plan was within the gap at once
  double solve_s = 0;
  double incumbent_step_s = 0;       // what the greedy rule alone gives
  std::optional<Shortage> shortage;  // when infeasible
  std::string words;                 // the solver's own, for the log
};

// Throws UsageError for a solver that is not there or not known. Always has a plan when one exists, also at a time
// limit of 0. Deterministic unless the time limit ends it.
WindowSolution solve_instance(const Instance& instance, const SolveOptions& options);

}  // namespace lazytrain::plan
