// `lazytrain plan --instance FILE`: solves an instance of the planning problem as it stands in a file.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/mip/solver.h"

namespace lazytrain::cli {

struct InstanceArgs {
  std::string file;
  std::string solver;
  std::optional<double> gap;  // the instance's without it
  std::optional<double> time_limit_s;
  std::string mps;
  std::vector<const CLI::Option*> conflicting;  // the options that --instance leaves nothing to say
};

// What the options say, checked; `time_limit_s` holds where none is given.
plan::SolveOptions solve_options(const InstanceArgs& args, double time_limit_s);

// Adds --instance, with which every option of `command` so far is in conflict, and the options of the solver.
void add_instance_options(CLI::App& command, const std::shared_ptr<InstanceArgs>& args);
// Throws UsageError for values out of range and Infeasible when nothing fits.
int plan_instance(const InstanceArgs& args, bool json);

}  // namespace lazytrain::cli
