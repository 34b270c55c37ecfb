// The policy `lazytrain-paper`: the published system (arXiv 2608.11919) as a point of the policy space. Checkpoints and
// their homes come from its own mathematical program (mip/paper_problem.h); each layer is run again whole before its
// backward, the block's others once more, the last one not; weights are streamed for each window; the update comes
// behind everything, with the clipping barrier that its runtime has.
#pragma once

#include <optional>

#include "plan/mip/paper_problem.h"
#include "plan/planner.h"

namespace lazytrain::plan {

inline constexpr const char* kPaperPolicy = "lazytrain-paper";

// What the task's budgets leave for checkpoints by static accounting: the device without weight slots, scratch and the
// largest workspace of a window, the host without weights, gradients and optimizer state, the disk as it is. May be
// negative.
TierGb paper_capacities(const PlanningTask& task);

// Windows and recompute costs of the task's layers, gradients and weights as the traffic that windows have anyway.
PaperInstance make_paper_instance(const PlanningTask& task, const TierGb& capacities);

// Boundary i of the plan is the output of graph unit i.
Policy make_paper_policy(const PlanningTask& task, const PaperPlan& plan);

// Solves, compiles and, where the program needs more than static accounting sees, solves again with less; the policy's
// bound is left at 0, since the published objective is no step time. Empty when nothing fits. Throws
// UsageError beyond kMaxPaperLayers. `capacities`: instead of
// what the budgets leave; the compiled program is then taken as it is.
std::optional<PlannedStep> lazytrain_paper_step(const PlanningTask& task, const SolveOptions& options,
                                                const std::optional<TierGb>& capacities = {});

}  // namespace lazytrain::plan
