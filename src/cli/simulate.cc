// lazytrain simulate: the step that a plan predicts.
#include <spdlog/spdlog.h>

#include "base/units.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/planned.h"
#include "plan/describe.h"
#include "plan/trace.h"

namespace lazytrain::cli {
namespace {

struct SimulateArgs {
  std::string plan;
  std::string model;
  std::string profile;
  std::string trace;
  bool json = false;
};

// A plan is simulated wherever it is asked for, but not without a word where it would not run.
void warn_of_size(const LoadedPlan& loaded, const std::string& path) {
  const hw::Profile& machine = loaded.machine;
  if (machine.one_memory) return;
  std::string lacks;
  for (const auto& [tier, has] :
       {std::pair{plan::Tier::kDevice, machine.device_bytes}, {plan::Tier::kHost, machine.host_bytes}}) {
    const int64_t needs = loaded.planned.program.tier_bytes[static_cast<size_t>(tier)];
    if (needs <= has) continue;
    lacks += fmt::format("{}{}: {} short, {} planned of {} there", lacks.empty() ? "" : "; ", plan::name_of(tier),
                         format_bytes(needs - has), format_bytes(needs), format_bytes(has));
  }
  if (lacks.empty()) return;
  spdlog::warn("{} does not fit {} ({}): make one that does with `lazytrain plan --profile`", path, machine.name,
               lacks);
}

int simulate_command(const SimulateArgs& args) {
  const LoadedPlan loaded = load_plan(args.plan, args.model, args.profile);
  const Planned& planned = loaded.planned;
  if (!args.trace.empty()) plan::write_trace(planned.program, loaded.graph, planned.timeline, args.trace);
  print(args.json, plan::to_json(plan::figures_of(planned.program, loaded.graph, planned.timeline)),
        plan::describe(planned.program, loaded.graph, planned.timeline, loaded.machine, {}, shows_colour()));
  warn_of_size(loaded, args.plan);
  return 0;
}

}  // namespace

void add_simulate(CLI::App& app, Chosen& chosen) {
  auto args = std::make_shared<SimulateArgs>();
  CLI::App* command = add_command(app, chosen, "simulate", "Simulate a plan's step", args, simulate_command);
  command->add_option("--plan", args->plan, "plan.json of `lazytrain plan` or of a run")->required();
  command->add_option("--model", args->model, "Model folder or config.json; the plan's own without it");
  command->add_option("--profile", args->profile, "`this` or a file; the plan's own without it");
  command->add_option("--trace", args->trace, "File for a trace that Perfetto shows");
  command->add_flag("--json", args->json, "Print {step_s, exposed_s, lanes, peak_bytes, tok_per_s, tflops}");
}

}  // namespace lazytrain::cli
