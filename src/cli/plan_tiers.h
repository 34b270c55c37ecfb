// `lazytrain plan` for machines whose device, host and disk are different memories.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/planned.h"
#include "plan/budget.h"
#include "plan/mip/solve.h"
#include "plan/planner.h"

namespace lazytrain::cli {

struct TiersRequest {
  std::string policy = "auto";  // auto: lazytrain
  bool any_micro_batch = false;
  plan::SolveOptions solve;
  std::string mps;  // file for the mathematical program, or empty
  bool compare = false;
};

struct TiersAnswer {
  plan::PlannedStep step;
  plan::TierGb budget;     // that it was planned with
  std::string comparison;  // a line a policy that it was held against; empty without `compare`
};

// GB of budgets, the machine's own where none is given; no disk unless it is asked for, since planning a step over it
// writes it as often as there are steps.
plan::TierGb budget_gb(const plan::Budgets& budgets, const hw::Profile& machine);

// The machine's disk is used when nothing fits without it, with a line in the log. Throws UsageError for a policy that
// is not known, Infeasible when it does not fit.
TiersAnswer plan_on_tiers(const plan::PlanningTask& task, const TiersRequest& request);

// What each pass of the model's unit kinds costs on the machine, and the retained sets that were to choose from.
std::string explain_costs(const plan::PlanningTask& task);

}  // namespace lazytrain::cli
