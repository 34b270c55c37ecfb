// lazytrain plan: a policy for a model on a machine, with its memory and its predicted step time.
#include <spdlog/spdlog.h>

#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/compute.h"
#include "cli/machine.h"
#include "cli/output.h"
#include "cli/planned.h"
#include "model/family.h"
#include "plan/describe.h"
#include "plan/heuristics.h"
#include "train/planning.h"

namespace lazytrain::cli {
namespace {

struct PlanArgs {
  std::string model;
  std::string profile = "this";
  plan::Shape shape;
  std::string policy = "auto";
  std::string compute = "bf16";
  std::string device_memory, host_memory;
  std::string optimizer_state = "fp32";
  std::string out;
  std::map<std::string, std::string> refused;  // options of planners that this version does not have, where given
  bool json = false;
};

// Options of the interface whose meaning this version has nothing for, with what to do instead.
constexpr std::pair<const char*, const char*> kRefused[] = {
    {"--solver", "its policies are fixed rules and need no solver"},
    {"--gap", "its policies are fixed rules and have no gap"},
    {"--time-limit", "its policies are fixed rules and take no time"},
    {"--mps", "it has no mathematical program to write"},
    {"--instance", "it solves no planner instances"},
    {"--disk-memory", "it keeps nothing on disk"},
};

void refuse_what_is_missing(const PlanArgs& args) {
  for (const auto& [option, reason] : kRefused) {
    if (args.refused.contains(option)) {
      throw UsageError("{}: this version cannot honour it: {}. Leave it out; policies are {} and {}.", option, reason,
                       plan::policy_names().front(), plan::policy_names().back());
    }
  }
  if (args.model.empty()) throw UsageError("plan needs --model FOLDER_OR_CONFIG");
  if (args.shape.batch == 0 || args.shape.seq == 0) throw UsageError("plan needs --batch N and --seq N");
  if (args.optimizer_state != "fp32") {
    throw UsageError("--optimizer-state: '{}' is not supported by this version, only fp32", args.optimizer_state);
  }
}

plan::Budgets budgets_of(const PlanArgs& args, const hw::Profile& machine) {
  plan::Budgets budgets;
  if (!args.device_memory.empty()) budgets.device = parse_bytes(args.device_memory, "--device-memory");
  if (!args.host_memory.empty()) budgets.host = parse_bytes(args.host_memory, "--host-memory");
  budgets.available = machine.host_bytes;
  return budgets;
}

int plan_command(const PlanArgs& args) {
  refuse_what_is_missing(args);
  plan::Shape shape = args.shape;
  if (shape.micro_batch == 0) shape.micro_batch = shape.batch;
  if (shape.micro_batch > shape.batch) {
    throw UsageError("--micro-batch: {} is more than the batch of {}", shape.micro_batch, shape.batch);
  }
  const DType compute = parse_compute(args.compute);
  const model::ModelConfig config = model::load_config(args.model);
  const graph::Graph graph = model::build_graph(config);
  if (shape.seq > graph.max_positions) {
    throw UsageError("--seq: {} is more than the model's {} positions (max_position_embeddings)", shape.seq,
                     graph.max_positions);
  }
  const hw::Profile machine = machine_of(args.profile, compute);
  const plan::Budgets budgets = budgets_of(args, machine);
  const plan::CompileOptions options = compile_options(compute, train::threads_of({}));
  const plan::Policy policy = plan::named_policy(args.policy == "auto" ? "resident" : args.policy, graph, shape);
  Planned planned = planned_run(graph, policy, options, machine);
  if (args.policy == "auto" && !plan::fits(planned.program, budgets)) {
    planned = planned_run(graph, plan::megatrain(graph, shape), options, machine);
  }
  plan::check_budgets(graph, planned.program, options, machine, budgets);
  const Json plan_json = plan_file(planned, config, machine);
  if (!args.out.empty()) write_file(args.out, plan_json.dump(2) + "\n");
  Json object = plan::to_json(plan::figures_of(planned.program, graph, planned.timeline));
  object["policy"] = planned.program.policy.name;
  object["profile"] = hw::to_json(machine);
  object["plan"] = plan::to_json(planned.program.policy);
  print(args.json, object, plan::describe(planned.program, graph, planned.timeline, machine, budgets));
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Chosen& chosen) {
  auto args = std::make_shared<PlanArgs>();
  CLI::App* command = add_command(app, chosen, "plan", "Plan a training step; needs no weights", args, plan_command);
  command->add_option("--model", args->model, "Model folder or config.json");
  command
      ->add_option("--profile", args->profile, "`this`: this machine, measured now; or a file of `lazytrain profile`")
      ->capture_default_str();
  CLI::Range positive(int64_t{1}, int64_t{1} << 40);
  positive.description("");
  command->add_option("--batch", args->shape.batch, "Sequences an optimizer step")->type_name("N")->check(positive);
  command->add_option("--seq", args->shape.seq, "Tokens a sequence")->type_name("N")->check(positive);
  command->add_option("--micro-batch", args->shape.micro_batch, "Sequences computed at once; the batch without it")
      ->type_name("N")
      ->check(positive);
  command->add_option("--policy", args->policy, "resident or megatrain; auto: resident when it fits, else megatrain")
      ->capture_default_str();
  command->add_option("--compute", args->compute, "bf16 or fp32")->capture_default_str();
  command->add_option("--device-memory", args->device_memory, "Budget, such as 8GB or 8GiB");
  command->add_option("--host-memory", args->host_memory, "Budget, such as 8GB or 8GiB");
  command->add_option("--optimizer-state", args->optimizer_state, "fp32")->capture_default_str();
  command->add_option("--out", args->out, "File for the plan (JSON), for `simulate`, `report` and plan.policy");
  command->add_flag("--json", args->json,
                    "Print {step_s, exposed_s, lanes, peak_bytes, tok_per_s, tflops, policy, plan}");
  for (const auto& [option, reason] : kRefused) {
    command
        ->add_option_function<std::string>(
            option, [args, option = option](const std::string& value) { args->refused[option] = value; }, "")
        ->group("");
  }
}

}  // namespace lazytrain::cli
