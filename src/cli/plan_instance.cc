#include "cli/plan_instance.h"

#include <spdlog/spdlog.h>

#include "base/error.h"
#include "cli/output.h"
#include "plan/mip/paper_problem.h"
#include "plan/mip/solve.h"
#include "plan/mip/window_problem.h"

namespace lazytrain::cli {
namespace {

constexpr double kTimeLimit = 60;
constexpr int64_t kMaxInstanceBytes = int64_t{1} << 26;

[[noreturn]] void refuse(const plan::Instance& instance, const plan::Shortage& shortage) {
  throw Infeasible(
      "{}: {:.4g} GB needed, {:.4g} allowed, {:.4g} GB short, with the other tiers as they are. Raise budget_gb.{}, "
      "allow "
      "longer blocks than max_block {}, or plan for a smaller batch.",
      name_of(shortage.tier), shortage.needed_gb, shortage.budget_gb, shortage.lacking_gb, name_of(shortage.tier),
      instance.max_block);
}

std::string describe(const plan::Instance& instance, const plan::WindowSolution& solution) {
  return fmt::format("{}: {} units, {} by {} in {:.2f} s\n", instance.name.empty() ? "instance" : instance.name,
                     instance.units, name_of(solution.status), solution.solver, solution.solve_s) +
         plan::describe(instance, *solution.plan) +
         fmt::format("step_s {:.6f}, no plan is below {:.6f} (gap {:.3g} %)", solution.step_s, solution.bound_s,
                     100 * solution.gap);
}

// A file of the published formulation.
int plan_paper(const InstanceArgs& args, const Json& file, const plan::SolveOptions& options, bool json) {
  const plan::PaperInstance instance = plan::paper_instance_from_json(file, args.file);
  if (!args.mps.empty()) plan::write_mps(plan::build_paper_problem(instance).mip, args.mps);
  const plan::PaperSolution solution = plan::solve_paper(instance, options);
  spdlog::debug("{}: {}", solution.solver, solution.words);
  if (!solution.plan) {
    throw Infeasible(
        "{}: no checkpoints were found whose bytes ({:.4g} GB for boundary 0) fit device {:.4g}, host {:.4g} and disk "
        "{:.4g} GB with blocks of at most {} layers. Raise budget_gb or max_block.",
        args.file, instance.boundary_gb.front(), instance.budget_gb.device, instance.budget_gb.host,
        instance.budget_gb.disk, instance.max_block);
  }
  const Json object = {{"status", name_of(solution.status)},
                       {"objective", solution.plan->objective},
                       {"bound", solution.bound},
                       {"gap", solution.gap},
                       {"solver", solution.solver},
                       {"solve_s", solution.solve_s},
                       {"plan", plan::to_json(instance, *solution.plan)}};
  print(json, object,
        fmt::format("{}: {} layers, {} by {} in {:.2f} s\n{}objective {:.6f}, no plan is below {:.6f} (gap {:.3g} %)",
                    instance.name.empty() ? "instance" : instance.name, instance.layers, name_of(solution.status),
                    solution.solver, solution.solve_s, plan::describe(instance, *solution.plan),
                    solution.plan->objective, solution.bound, 100 * solution.gap));
  return 0;
}

}  // namespace

plan::SolveOptions solve_options(const InstanceArgs& args, double time_limit_s) {
  plan::SolveOptions options;
  options.solver = !args.solver.empty() ? args.solver : plan::has_highs() ? "highs" : "greedy";
  plan::check_solver_name(options.solver, "--solver");
  if (args.gap && !(*args.gap >= 0 && *args.gap < 1)) {
    throw UsageError("--gap: {} is no relative gap, expected a number from 0 to below 1, such as 0.002", *args.gap);
  }
  if (args.time_limit_s && !(*args.time_limit_s >= 0)) {
    throw UsageError("--time-limit: {} is no time, expected seconds from 0 on", *args.time_limit_s);
  }
  options.gap = args.gap.value_or(-1);
  options.time_limit_s = args.time_limit_s.value_or(time_limit_s);
  return options;
}

void add_instance_options(CLI::App& command, const std::shared_ptr<InstanceArgs>& args) {
  for (const CLI::Option* option : command.get_options()) {
    if (!option->check_lname("help") && !option->check_lname("json")) args->conflicting.push_back(option);
  }
  command.add_option("--instance", args->file, "Solve this instance of the planning problem (JSON)")->type_name("FILE");
  command.add_option("--solver", args->solver, "highs, scip or greedy; highs where it is built in")->type_name("NAME");
  command.add_option("--gap", args->gap, "Stop when no plan can be faster by more than this part")->type_name("G");
  command.add_option("--time-limit", args->time_limit_s, "Seconds for the solver; 0: the greedy plan")->type_name("S");
  command.add_option("--mps", args->mps, "File for the mixed-integer program")->type_name("FILE");
}

int plan_instance(const InstanceArgs& args, bool json) {
  for (const CLI::Option* option : args.conflicting) {
    if (option->count() == 0) continue;
    throw UsageError("--instance: {} has no meaning beside it, the file says everything. Leave one of them out.",
                     option->get_name());
  }
  const plan::SolveOptions options = solve_options(args, kTimeLimit);
  plan::require_solver(options.solver);
  const Json file = read_json(args.file, kMaxInstanceBytes);
  if (plan::is_paper_instance(file)) return plan_paper(args, file, options, json);
  const plan::Instance instance = plan::instance_from_json(file, args.file);
  if (!args.mps.empty()) plan::write_mps(plan::build_problem(instance).mip, args.mps);
  const plan::WindowSolution solution = plan::solve_instance(instance, options);
  spdlog::debug("{}: {}", solution.solver, solution.words);
  if (!solution.plan) refuse(instance, solution.shortage.value_or(plan::Shortage()));
  const Json object = {{"status", name_of(solution.status)},
                       {"step_s", solution.step_s},
                       {"bound_s", solution.bound_s},
                       {"gap", solution.gap},
                       {"solver", solution.solver},
                       {"solve_s", solution.solve_s},
                       {"plan", plan::to_json(instance, *solution.plan)}};
  print(json, object, describe(instance, solution));
  return 0;
}

}  // namespace lazytrain::cli
