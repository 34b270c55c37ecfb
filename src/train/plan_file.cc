#include "train/plan_file.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "model/family.h"

namespace lazytrain::train {
namespace {

constexpr int64_t kMaxPlanBytes = int64_t{1} << 26;

std::string compute_name(DType compute) { return compute == DType::kF32 ? "fp32" : "bf16"; }

// A configuration that is not understood any more tells nothing: the plan is then refused by its fingerprint alone.
std::optional<plan::ModelFacts> facts_of_config(const Json& config, const std::string& where) {
  try {
    return plan::facts_of(model::build_graph(model::parse_config(config, where)));
  } catch (const Error&) {
    return std::nullopt;
  }
}

// With which a step could not be skipped as a whole.
void refuse_updates_in_backward(const PlanFile& plan) {
  if (!plan.policy.update_in_backward) return;
  throw UsageError(
      "{}: has \"update_in_backward\", with which weights are updated before the step's last gradient is known; a "
      "training step whose gradients are not all finite must leave every weight as it was. Such plans are for "
      "`plan` and `simulate`: plan again without --no-clip, or set \"update_in_backward\": false in the file and "
      "take each \"early_update\" out of it",
      plan.path.string());
}

}  // namespace

std::string plan_file_text(const plan::Program& program, const model::ModelConfig& config, const hw::Profile& machine) {
  Json json = plan::to_json(program.policy);
  json["compute"] = compute_name(program.compute);
  json["profile"] = hw::to_json(machine);
  json["model_config"] = config.raw;
  return json.dump(2) + "\n";
}

PlanFile read_plan_file(const std::filesystem::path& path) {
  const std::string where = path.string();
  const Json json = read_json(path, kMaxPlanBytes);
  const JsonObject object(json, where);
  PlanFile plan{
      .path = path, .policy = plan::policy_from_json(json, where), .compute = {}, .machine = {}, .model_config = {}};
  plan.compute = object.string_or("compute", "");
  if (object.has("profile")) plan.machine = hw::profile_from_json(json.at("profile"), where + ": profile");
  if (object.has("model_config")) plan.model_config = json.at("model_config");
  plan::MadeFor& made_for = plan.policy.made_for;
  if (!made_for.machine && plan.machine) made_for.machine = plan::facts_of(*plan.machine);
  if (!made_for.model && !plan.model_config.is_null()) {
    made_for.model = facts_of_config(plan.model_config, where + ": model_config");
  }
  return plan;
}

void check_against(const PlanFile& plan, const RunConfig& config, const graph::Graph& graph,
                   const hw::Profile& machine) {
  const plan::Policy& policy = plan.policy;
  refuse_updates_in_backward(plan);
  std::vector<std::string> found;
  if (policy.model != graph.fingerprint) found = plan::model_differences(policy, graph);
  const auto compare = [&](std::string_view what, const auto& there, const auto& here) {
    if (there != here) found.push_back(plan::difference(what, there, here));
  };
  compare("batch", policy.batch, config.batch);
  compare("micro_batch", policy.micro_batch, config.micro_batch);
  compare("seq", policy.seq, config.seq);
  if (!plan.compute.empty()) compare("compute", shown(plan.compute), compute_name(config.compute));
  compare("optimizer.state", policy.optimizer_state, config.optimizer.state);
  const auto& made_for = policy.made_for.machine;
  const plan::MachineFacts here = plan::facts_of(machine);
  if (made_for && made_for->one_memory != here.one_memory) {
    found.push_back(plan::difference("machine", plan::describe(*made_for), plan::describe(here)));
  }
  if (!found.empty()) {
    throw UsageError(
        "{}: was made for something else:\n  {}\nMake the run's keys equal to the plan's, or make a plan for this "
        "run: plan.policy=auto, or `lazytrain plan --model {} --out FILE ...`",
        plan.path.string(), fmt::join(found, "\n  "), config.model.string());
  }
  plan::check_against(policy, graph, plan.path.string());
}

}  // namespace lazytrain::train
