#include "plan/mip/solve.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "plan/mip/evaluate.h"
#include "plan/mip/feasible.h"
#include "plan/mip/incumbent.h"
#include "plan/mip/rounding.h"
#include "plan/mip/window_problem.h"

namespace lazytrain::plan {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kDiskSearch = 10;  // times the search without homes on disk

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

class Solving {
 public:
  Solving(const Instance& instance, const SolveOptions& options) : in_(instance), options_(options) {
    if (options_.solver.empty()) options_.solver = has_highs() ? "highs" : "greedy";
    check_solver_name(options_.solver, "solver");
    require_solver(options_.solver);
    may_skip_ = options.solver.empty();
    if (options_.gap < 0) options_.gap = in_.gap;
  }

  WindowSolution run() {
    const Fit fit = find_fit(in_);
    bound_s_ = std::max(in_.bound_s(), options_.bound_s);
    solution_.solver = "greedy";
    if (fit.choices) take(greedy_plan(in_, *fit.choices));
    for (const WindowChoices& choices : tight_fits(in_)) take(greedy_plan(in_, choices));
    solution_.incumbent_step_s = best_ ? best_->step_s : 0;
    const bool wanted = best_ ? is_open() || !may_skip_ : !fit.is_proof;
    if (options_.solver != "greedy" && options_.time_limit_s > 0 && !options_.stop.stop_requested() && wanted) {
      solve();
    }
    if (!best_) return infeasible();
    // People read the map: among plans as good, the regular one.
    const double allowed_s = best_->step_s + std::max(1e-9, 0.02 * options_.gap * best_->step_s);
    best_ = regular_plan(in_, *best_,
                         std::min(allowed_s, std::max(best_->step_s, bound_s_ / (1 - std::min(0.999, options_.gap)))));
    solution_.step_s = best_->step_s;
    solution_.bound_s = std::min(bound_s_, best_->step_s);
    solution_.gap = gap();
    solution_.plan = std::move(best_);
    solution_.status = proven_ || solution_.gap <= options_.gap + 1e-9 ? WindowStatus::kOptimal
                       : options_.solver == "greedy"                   ? WindowStatus::kFeasible
                                                                       : WindowStatus::kTimeLimit;
    return finished();
  }

 private:
  double gap() const {
    return best_ && best_->step_s > 0 ? std::max(0.0, (best_->step_s - bound_s_) / best_->step_s) : 0;
  }
  void take(WindowPlan plan) {
    if (!best_ || plan.step_s < best_->step_s - 1e-9) best_ = std::move(plan);
  }

  double left_s() const {
    return options_.stop.stop_requested() ? 0 : std::max(0.0, options_.time_limit_s - since(begin_));
  }
  bool is_open() const { return gap() > options_.gap; }

  void solve() {
    const WindowProblem problem = build_problem(in_);
    if (best_ && options_.solver == "highs" && relaxed_is_enough(problem)) return;
    SolveOptions options = options_;
    options.time_limit_s = left_s();
    // The program's own objective has the ties in it, the step has not.
    if (best_) options.gap = std::max(options_.gap / 2, options_.gap - problem.max_ties / best_->step_s);
    const std::vector<double> start = best_ ? problem.values_of(*best_) : std::vector<double>();
    const MipResult result = solve_mip(problem.mip, start, options);
    solution_.words = result.words;
    solution_.solver = result.solver;
    if (result.status == MipStatus::kInfeasible) return;
    raise_bound(result.bound - problem.max_ties);
    proven_ = result.status == MipStatus::kGapReached;
    if (result.values.empty()) return;
    // The same choices priced by arithmetic have no solver's tolerances in them; but the solver may know better
    // windows.
    if (auto plan = Evaluator(in_).plan(problem.choices_of(result.values))) take(std::move(*plan));
    WindowPlan plan = problem.plan_of(result.values);
    if (best_ && plan.step_s >= best_->step_s * (1 - 1e-7)) return;
    if (check(in_, plan, 1e-5).empty()) take(std::move(plan));
  }

  // The relaxation's bound is often all the proof that is needed, and a little more search all that is missing.
  bool relaxed_is_enough(const WindowProblem& problem) {
    if (options_.bound_s <= 0) {
      Mip relaxed = problem.mip;
      for (MipColumn& column : relaxed.columns) column.integer = false;
      SolveOptions options = options_;
      options.time_limit_s = left_s();
      const MipResult result = solve_mip(relaxed, {}, options);
      if (result.status != MipStatus::kGapReached) return false;
      raise_bound(result.bound - problem.max_ties);
      solution_.words = "the relaxation's bound";
      solution_.solver = result.solver;
      if (is_open()) search_near(problem, result.values);
    }
    for (int round = 0; round < 4 && is_open() && left_s() > 0; ++round) {
      take(improve(in_, best_->choices, evaluations(), bound_s_ / (1 - std::min(0.5, options_.gap)), round + 2));
    }
    return !is_open();
  }
  void search_near(const WindowProblem& problem, const std::vector<double>& values) {
    const auto start = repaired(in_, rounded(in_, problem, values));
    if (!start || !std::isfinite(Evaluator(in_).step_s(*start))) return;
    take(improve(in_, *start, evaluations(), bound_s_ / (1 - std::min(0.5, options_.gap))));
  }
  // Homes on disk make good plans rarer.
  int evaluations() const {
    return (in_.has_disk_homes() ? kDiskSearch : 1) * kGreedyEvaluations * std::max(1, in_.units / 32) / 2;
  }
  void raise_bound(double bound) {
    if (std::isfinite(bound)) bound_s_ = std::max(bound_s_, bound);
  }

  WindowSolution infeasible() {
    solution_.status = WindowStatus::kInfeasible;
    solution_.solver = options_.solver;
    solution_.shortage = find_shortage(in_);
    return finished();
  }
  WindowSolution finished() {
    solution_.solve_s = since(begin_);
    return std::move(solution_);
  }

  const Instance& in_;
  SolveOptions options_;
  Clock::time_point begin_ = Clock::now();
  bool may_skip_ = false, proven_ = false;
  double bound_s_ = 0;
  std::optional<WindowPlan> best_;
  WindowSolution solution_;
};

}  // namespace

std::string_view name_of(WindowStatus status) {
  switch (status) {
    case WindowStatus::kOptimal:
      return "optimal";
    case WindowStatus::kTimeLimit:
      return "time_limit";
    case WindowStatus::kFeasible:
      return "feasible";
    case WindowStatus::kInfeasible:
      break;
  }
  return "infeasible";
}

WindowSolution solve_instance(const Instance& instance, const SolveOptions& options) {
  return Solving(instance, options).run();
}

}  // namespace lazytrain::plan
