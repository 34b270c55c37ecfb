// HiGHS through its C interface: its binary packages are built with another std::string than ours.
#include <interfaces/highs_c_api.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "plan/mip/adapters.h"
#include "plan/mip/watchdog.h"

namespace lazytrain::plan {
namespace {

struct Destroy {
  void operator()(void* highs) const { Highs_destroy(highs); }
};
using Handle = std::unique_ptr<void, Destroy>;

// What the callback needs; HiGHS hands it back as a pointer.
struct Watcher {
  SolverTask& task;
  size_t columns;
};

void on_callback(const int type, const char*, const HighsCallbackDataOut* out, HighsCallbackDataIn* in, void* data) {
  const Watcher& watcher = *static_cast<const Watcher*>(data);
  if (std::isfinite(out->mip_dual_bound) && type != kHighsCallbackSimplexInterrupt &&
      type != kHighsCallbackIpmInterrupt) {
    watcher.task.raise_bound(out->mip_dual_bound);
  }
  if (type == kHighsCallbackMipImprovingSolution && out->mip_solution != nullptr) {
    watcher.task.improve({out->mip_solution, out->mip_solution + watcher.columns}, out->objective_function_value);
  } else if (in != nullptr && watcher.task.should_stop()) {
    in->user_interrupt = 1;
  }
}

void must(HighsInt status, const char* what) {
  if (status == kHighsStatusError) throw RunError("HiGHS refused {}", what);
}

void pass(void* highs, const Mip& mip) {
  std::vector<double> cost, lower, upper, row_lower, row_upper, values;
  std::vector<HighsInt> integrality, starts, indices;
  bool integer = false;
  for (const MipColumn& c : mip.columns) {
    cost.push_back(c.cost);
    lower.push_back(c.lower);
    upper.push_back(c.upper);
    integrality.push_back(c.integer ? kHighsVarTypeInteger : kHighsVarTypeContinuous);
    integer = integer || c.integer;
  }
  for (const MipRow& row : mip.rows) {
    starts.push_back(static_cast<HighsInt>(indices.size()));
    row_lower.push_back(row.lower);
    row_upper.push_back(row.upper);
    for (const auto& [column, value] : row.entries) {
      indices.push_back(column);
      values.push_back(value);
    }
  }
  const auto columns = static_cast<HighsInt>(cost.size()), rows = static_cast<HighsInt>(row_lower.size());
  const auto entries = static_cast<HighsInt>(values.size());
  const HighsInt by_row = kHighsMatrixFormatRowwise, minimise = kHighsObjSenseMinimize;
  must(integer
           ? Highs_passMip(highs, columns, rows, entries, by_row, minimise, 0, cost.data(), lower.data(), upper.data(),
                           row_lower.data(), row_upper.data(), starts.data(), indices.data(), values.data(),
                           integrality.data())
           : Highs_passLp(highs, columns, rows, entries, by_row, minimise, 0, cost.data(), lower.data(), upper.data(),
                          row_lower.data(), row_upper.data(), starts.data(), indices.data(), values.data()),
       "the program");
}

void report(void* highs, const Mip& mip, SolverTask& task) {
  const HighsInt model = Highs_getModelStatus(highs);
  HighsInt solution = kHighsSolutionStatusNone;
  Highs_getIntInfoValue(highs, "primal_solution_status", &solution);
  if (solution == kHighsSolutionStatusFeasible) {
    std::vector<double> values(mip.columns.size()), activity(mip.rows.size());
    Highs_getSolution(highs, values.data(), nullptr, activity.data(), nullptr);
    task.improve(values, Highs_getObjectiveValue(highs));
  }
  const bool integer =
      std::any_of(mip.columns.begin(), mip.columns.end(), [](const MipColumn& c) { return c.integer; });
  double bound = -kInfinity;
  if (integer) {
    Highs_getDoubleInfoValue(highs, "mip_dual_bound", &bound);
  } else if (model == kHighsModelStatusOptimal) {
    bound = Highs_getObjectiveValue(highs);
  }
  if (std::isfinite(bound)) task.raise_bound(bound);
  const auto ended = [&](MipStatus status, const char* words) { task.end(status, words); };
  switch (model) {
    case kHighsModelStatusOptimal:
      return ended(MipStatus::kGapReached, "optimal");
    case kHighsModelStatusInfeasible:
    case kHighsModelStatusUnboundedOrInfeasible:
      return ended(MipStatus::kInfeasible, "infeasible");
    case kHighsModelStatusTimeLimit:
    case kHighsModelStatusInterrupt:
      return ended(MipStatus::kTimeLimit, "time limit");
    default:
      return task.end(MipStatus::kFault, fmt::format("model status {}", model));
  }
}

void solve(const Mip& mip, const std::vector<double>& start, double time_limit_s, double gap, SolverTask& task) {
  const Handle highs(Highs_create());
  must(Highs_setBoolOptionValue(highs.get(), "output_flag", 0), "output_flag");
  must(Highs_setIntOptionValue(highs.get(), "threads", 1), "threads");
  must(Highs_setDoubleOptionValue(highs.get(), "time_limit", time_limit_s), "time_limit");
  must(Highs_setDoubleOptionValue(highs.get(), "mip_rel_gap", gap), "mip_rel_gap");
  pass(highs.get(), mip);
  if (!start.empty()) Highs_setSolution(highs.get(), start.data(), nullptr, nullptr, nullptr);
  Watcher watcher{task, mip.columns.size()};
  must(Highs_setCallback(highs.get(), on_callback, &watcher), "a callback");
  for (const int type : {kHighsCallbackMipImprovingSolution, kHighsCallbackMipInterrupt, kHighsCallbackSimplexInterrupt,
                         kHighsCallbackIpmInterrupt}) {
    must(Highs_startCallback(highs.get(), type), "a callback");
  }
  Highs_run(highs.get());
  report(highs.get(), mip, task);
}

}  // namespace

bool has_highs() { return true; }

MipResult solve_with_highs(const Mip& mip, const std::vector<double>& start, const SolveOptions& options) {
  // Shared with the thread, which may outlive this call.
  const auto owned = std::make_shared<const Mip>(mip);
  MipResult result =
      run_watched([owned, start, time_limit_s = options.time_limit_s,
                   gap = options.gap](SolverTask& task) { solve(*owned, start, time_limit_s, gap, task); },
                  start, start.empty() ? 0 : mip.objective(start), options.time_limit_s, kGraceS, options.stop);
  result.solver = "highs";
  return result;
}

}  // namespace lazytrain::plan
