// What to say, and what to try, when nothing fits a machine of several memories.
#pragma once

#include "plan/instance_builder.h"

namespace lazytrain::plan {

// Throws Infeasible: which tier lacks how many bytes and what takes them, and up to three changes that were tried and
// fit, with their figures, by the names of the task's settings. `any_micro_batch`: the planner may choose it.
[[noreturn]] void throw_infeasible(const PlanningTask& task, bool any_micro_batch);

}  // namespace lazytrain::plan
