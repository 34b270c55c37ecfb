// lazytrain plan: a policy for a model on a machine, with its memory and its predicted step time.
#include <spdlog/spdlog.h>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/compute.h"
#include "cli/machine.h"
#include "cli/output.h"
#include "cli/plan_instance.h"
#include "cli/plan_tiers.h"
#include "cli/planned.h"
#include "model/family.h"
#include "optim/state_layout.h"
#include "plan/describe.h"
#include "plan/heuristics.h"
#include "train/plan_file.h"
#include "train/planning.h"

namespace lazytrain::cli {
namespace {

constexpr double kTimeLimit = 10;  // seconds of solving a model's plan takes at most, when nothing is said

struct PlanArgs {
  std::string model;
  std::string profile = "this";
  plan::Shape shape;
  std::string policy = "auto";
  std::string compute = "bf16";
  std::string device_memory, host_memory, disk_memory;
  std::string optimizer_state = "fp32";
  std::string out;
  std::shared_ptr<InstanceArgs> solving = std::make_shared<InstanceArgs>();
  std::string measured;
  bool explain = false;
  bool compare = false;
  bool no_clip = false;
  bool json = false;
};

void check_args(const PlanArgs& args) {
  if (args.model.empty()) throw UsageError("plan needs --model FOLDER_OR_CONFIG, or --instance FILE");
  if (args.shape.batch == 0 || args.shape.seq == 0) throw UsageError("plan needs --batch N and --seq N");
  if (args.shape.micro_batch > args.shape.batch) {
    throw UsageError("--micro-batch: {} is more than the batch of {}", args.shape.micro_batch, args.shape.batch);
  }
  optim::state_setting_from_name(args.optimizer_state);  // refuses what it does not know
}

// On a machine of one memory policies are fixed rules.
void refuse_solving(const PlanArgs& args) {
  const InstanceArgs& solving = *args.solving;
  for (const auto& [option, given] : {std::pair{"--solver", !solving.solver.empty()},
                                      {"--gap", solving.gap.has_value()},
                                      {"--time-limit", solving.time_limit_s.has_value()},
                                      {"--mps", !solving.mps.empty()},
                                      {"--disk-memory", !args.disk_memory.empty()},
                                      {"--measured", !args.measured.empty()},
                                      {"--no-clip", args.no_clip},
                                      {"--explain", args.explain}}) {
    if (!given) continue;
    throw UsageError(
        "{}: on a machine whose device and host are one memory policies are fixed rules with nothing to solve and no "
        "disk. Leave it out, or name another --profile",
        option);
  }
}

plan::Budgets budgets_of(const PlanArgs& args, const hw::Profile& machine) {
  plan::Budgets budgets;
  const auto set = [](int64_t& budget, const std::string& text, const char* option) {
    if (text.empty()) return;
    budget = parse_bytes(text, option);
    if (budget <= 0) throw UsageError("{}: '{}' is no budget; expected more than 0 bytes", option, text);
  };
  set(budgets.device, args.device_memory, "--device-memory");
  set(budgets.host, args.host_memory, "--host-memory");
  set(budgets.disk, args.disk_memory, "--disk-memory");
  budgets.available = machine.one_memory ? machine.host_bytes : 0;
  return budgets;
}

struct Answer {
  Planned planned;
  std::string besides;  // what is printed behind the plan
};

Answer plan_in_one_memory(const PlanArgs& args, const graph::Graph& graph, const hw::Profile& machine, DType compute,
                          const plan::Budgets& budgets) {
  refuse_solving(args);
  plan::Shape shape = args.shape;
  if (shape.micro_batch == 0) shape.micro_batch = shape.batch;
  const plan::CompileOptions options = compile_options(compute, train::threads_of({}));
  const std::string name = args.policy == "auto" || args.policy == "lazytrain" ? "resident" : args.policy;
  plan::Policy policy = plan::named_policy(name, graph, shape);
  policy.optimizer_state = args.optimizer_state;
  Planned planned = planned_run(graph, policy, options, machine);
  if (name != args.policy && !plan::fits(planned.program, budgets)) {
    policy = plan::megatrain(graph, shape);
    policy.optimizer_state = args.optimizer_state;
    planned = planned_run(graph, policy, options, machine);
  }
  plan::check_budgets(graph, planned.program, options, machine, budgets);
  return {std::move(planned), ""};
}

Answer plan_on_several_memories(const PlanArgs& args, const graph::Graph& graph, const hw::Profile& machine,
                                DType compute, plan::Budgets& budgets) {
  plan::Shape shape = args.shape;
  if (shape.micro_batch == 0) shape.micro_batch = shape.batch;
  plan::PlanningTask task{graph, machine, shape, compute, args.optimizer_state, {}, budget_gb(budgets, machine)};
  task.update_in_backward = args.no_clip;
  std::optional<plan::Measurements> measured;
  if (!args.measured.empty()) {
    measured = plan::measurements_from_json(read_json(args.measured), args.measured);
    plan::check_against(*measured, graph, args.measured);
    task.measured = &*measured;
  }
  TiersRequest request;
  request.policy = args.policy;
  request.any_micro_batch = args.shape.micro_batch == 0;
  request.solve = solve_options(*args.solving, kTimeLimit);
  request.mps = args.solving->mps;
  request.compare = args.compare;
  TiersAnswer answer = plan_on_tiers(task, request);
  const plan::TierGb& gb = answer.budget;
  const auto bytes = [](double value) { return static_cast<int64_t>(value * 1e9); };
  budgets.device = bytes(gb.device);
  budgets.host = bytes(gb.host);
  budgets.disk = bytes(gb.disk);
  std::string besides = answer.comparison;
  if (args.explain) {
    plan::PlanningTask chosen = task;
    chosen.shape.micro_batch = answer.step.program.policy.micro_batch;
    besides += explain_costs(chosen);
  }
  return {{std::move(answer.step.program), std::move(answer.step.timeline)}, std::move(besides)};
}

int plan_command(const PlanArgs& args) {
  if (!args.solving->file.empty()) return plan_instance(*args.solving, args.json);
  check_args(args);
  const DType compute = parse_compute(args.compute);
  const model::ModelConfig config = model::load_config(args.model);
  const graph::Graph graph = model::build_graph(config);
  if (args.shape.seq > graph.max_positions) {
    throw UsageError("--seq: {} is more than the model's {} positions (max_position_embeddings)", args.shape.seq,
                     graph.max_positions);
  }
  const hw::Profile machine = machine_of(args.profile, compute);
  plan::Budgets budgets = budgets_of(args, machine);
  const Answer answer = machine.one_memory ? plan_in_one_memory(args, graph, machine, compute, budgets)
                                           : plan_on_several_memories(args, graph, machine, compute, budgets);
  const Planned& planned = answer.planned;
  if (!args.out.empty()) {
    write_file(args.out, train::plan_file_text(planned.program, config, machine));
  }
  Json object = plan::to_json(plan::figures_of(planned.program, graph, planned.timeline));
  const plan::Policy& policy = planned.program.policy;
  object["policy"] = policy.name;
  object["micro_batch"] = policy.micro_batch;
  object["solver"] = policy.solver;
  object["bound_s"] = policy.bound_s;
  object["gap"] = policy.gap;
  object["profile"] = hw::to_json(machine);
  object["plan"] = plan::to_json(policy);
  print(args.json, object,
        plan::describe(planned.program, graph, planned.timeline, machine, budgets, shows_colour()) + answer.besides);
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Chosen& chosen) {
  auto args = std::make_shared<PlanArgs>();
  CLI::App* command = add_command(app, chosen, "plan", "Plan a training step; needs no weights", args, plan_command);
  command->add_option("--model", args->model, "Model folder or config.json");
  command
      ->add_option("--profile", args->profile,
                   "`this`: this machine, measured now; a name of the library; or a file of `lazytrain profile`")
      ->capture_default_str();
  CLI::Range positive(int64_t{1}, int64_t{1} << 40);
  positive.description("");
  command->add_option("--batch", args->shape.batch, "Sequences an optimizer step")->type_name("N")->check(positive);
  command->add_option("--seq", args->shape.seq, "Tokens a sequence")->type_name("N")->check(positive);
  command
      ->add_option("--micro-batch", args->shape.micro_batch,
                   "Sequences computed at once; chosen by the planner, or the batch, without it")
      ->type_name("N")
      ->check(positive);
  command
      ->add_option(
          "--policy", args->policy,
          "resident, megatrain, zero3-offload, every-layer, lazytrain-paper or lazytrain; auto: lazytrain, and in one "
          "memory resident when it fits, else megatrain")
      ->capture_default_str();
  command->add_option("--compute", args->compute, "bf16 or fp32")->capture_default_str();
  command->add_option("--device-memory", args->device_memory, "Budget, such as 8GB or 8GiB");
  command->add_option("--host-memory", args->host_memory, "Budget, such as 8GB or 8GiB");
  command->add_option("--disk-memory", args->disk_memory, "Budget, such as 100GB; the profile's disk without it");
  command->add_option("--optimizer-state", args->optimizer_state, "fp32, 8bit[:BLOCK] or hybrid:FRACTION")
      ->capture_default_str();
  command->add_option("--measured", args->measured,
                      "File of what steps of this model took on this machine; without it the costs are the profile's");
  command->add_flag("--no-clip", args->no_clip,
                    "Gradients are not clipped: updates may begin in backward (for `simulate`; `train` refuses them)");
  command->add_flag("--explain", args->explain, "Print what each kind of layer costs and could retain");
  command->add_flag("--compare", args->compare, "Print what the other policies would take");
  command->add_option("--out", args->out, "File for the plan (JSON), for `simulate`, `report` and plan.policy");
  command->add_flag(
      "--json", args->json,
      "Print {step_s, exposed_s, lanes, peak_bytes, tok_per_s, tflops, policy, micro_batch, gap, plan, ...}");
  add_instance_options(*command, args->solving);
}

}  // namespace lazytrain::cli
