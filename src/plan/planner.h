// The planner: from a task to the policy that is predicted to be fastest, proven against a bound.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/instance_builder.h"
#include "plan/mip/solve.h"
#include "plan/program.h"
#include "plan/timeline.h"

namespace lazytrain::plan {

struct PlannedStep {
  Program program;  // validated, within the budgets
  Timeline timeline;
  double objective_s = 0;  // what the mathematical program says of the step that `timeline` simulates; 0: not solved
  std::string words;       // how it was found, for the log
};

// What instructions take on the task's machine: analytic, corrected by what was measured.
CostTable costs_of(const PlanningTask& task, const Program& program);

// Compiles, proves sound and simulates a policy for the task's machine. The policy's predicted_step_s is set.
PlannedStep step_of(const PlanningTask& task, const Policy& policy);

// True when every tier's bytes are within the task's budget.
bool fits(const PlanningTask& task, const Program& program);

// The policy `lazytrain`. With `any_micro_batch` the micro-batch of the task's shape is chosen too: halves of the
// batch, judged by the greedy rule, the best two solved; each solution is compiled, and the simulator decides. A
// program that turns out larger than its estimate, or late, tightens the budget and is solved again. The policy's bound
// is that of the whole budget; its gap is the solution's to it, and timeline.step_s against objective_s says what
// windows do not see. options.time_limit_s is for all of it. Throws Infeasible with the tier that lacks memory and the
// remedies that were found.
PlannedStep plan_step(const PlanningTask& task, const SolveOptions& options, bool any_micro_batch);

// The same; when nothing fits and the task has no disk, with the machine's, which then is the task's budget.
PlannedStep plan_step_with_disk(PlanningTask& task, const SolveOptions& options, bool any_micro_batch);

// The same, but empty when nothing fits or options.stop ended the search.
std::optional<PlannedStep> find_step_with_disk(PlanningTask& task, const SolveOptions& options, bool any_micro_batch);

// What named_step knows: policy_names() and `lazytrain-paper` (lazytrain_paper.h), which needs the machine.
std::vector<std::string> step_names();

// A named policy on the task's machine with the largest micro-batch (of the halves of the task's) that fits; empty when
// none does.
std::optional<PlannedStep> named_step(const PlanningTask& task, const std::string& name, bool any_micro_batch);

}  // namespace lazytrain::plan
