// A plan by a rule of our own: what there is at a time limit of 0, and what the solvers start from.
#pragma once

#include <optional>

#include "plan/mip/instance.h"
#include "plan/mip/window_plan.h"

namespace lazytrain::plan {

// How many prices the greedy rule asks: about 0.2 s at 100 units.
inline constexpr int kGreedyEvaluations = 24000;

// Improves choices that fit, by the gain in step time for the part of the budgets it takes, unit by unit, until no
// single change helps; then from random changes of them again, until `evaluations` prices were asked. Deterministic.
WindowPlan improve(const Instance& instance, const WindowChoices& choices, int evaluations, double target_s = 0,
                   int seed = 1);

// The best of a few starts, improved. `fit`: choices that fit, from find_fit.
WindowPlan greedy_plan(const Instance& instance, const WindowChoices& fit, int evaluations = kGreedyEvaluations);

// The same step with fewer surprises for who reads the map: among units with equal costs, late boundaries on the device
// and equal choices side by side. `allowed_s`: how long the step may become.
WindowPlan regular_plan(const Instance& instance, const WindowPlan& plan, double allowed_s);

}  // namespace lazytrain::plan
