// From a solution of the relaxation to choices: a start for the search where plans of its kind are hard to find.
#pragma once

#include <optional>
#include <vector>

#include "plan/mip/instance.h"
#include "plan/mip/window_plan.h"
#include "plan/mip/window_problem.h"

namespace lazytrain::plan {

// Each unit gets the option that is most behind what the values of the units up to it ask for, so that a third of a
// choice becomes every third unit. Sound in itself; may not fit the budgets.
WindowChoices rounded(const Instance& instance, const WindowProblem& problem, const std::vector<double>& values);

// Changes unit after unit, each time what lessens the excess over the budgets most, until the choices fit; empty when
// no single change lessens it.
std::optional<WindowChoices> repaired(const Instance& instance, WindowChoices choices);

}  // namespace lazytrain::plan
