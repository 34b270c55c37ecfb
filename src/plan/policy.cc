#include "plan/policy.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "graph/pass.h"
#include "optim/state_layout.h"

namespace lazytrain::plan {
namespace {

constexpr int64_t kMaxVisits = 1 << 15;                 // of units by micro-batches: compiled and checked in seconds
constexpr int64_t kMaxTokens = (int64_t{1} << 31) - 1;  // of a micro-batch: positions are 32-bit

Tier tier_from(const JsonObject& object, std::string_view key) {
  const std::string name = object.string(key);
  for (size_t i = 0; i < kTierNames.size(); ++i) {
    if (name == kTierNames[i]) return static_cast<Tier>(i);
  }
  throw InputError("{}: \"{}\" is '{}', expected one of {}", object.where(), key, name, fmt::join(kTierNames, ", "));
}

const Json& array_of(const JsonObject& object, std::string_view key) {
  const auto it = object.json().find(key);
  if (it == object.json().end() || !it->is_array()) throw InputError("{}: \"{}\" must be a list", object.where(), key);
  return *it;
}

double early_update_from(const JsonObject& unit, bool update_in_backward) {
  if (unit.has("early_update") && !update_in_backward) {
    throw InputError("{}: \"early_update\" says nothing without \"update_in_backward\": true", unit.where());
  }
  const double part = unit.number_or("early_update", 1);
  if (!(part >= 0 && part <= 1)) {
    throw InputError("{}: \"early_update\" is {}, expected the part of an update, 0 to 1", unit.where(), part);
  }
  return part;
}

// A key that is read by nobody is a mistake: it would change nothing and say nothing.
void refuse_others(const JsonObject& object, const std::vector<std::string>& known) {
  for (const auto& [key, value] : object.json().items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = nearest(key, known);
    throw InputError("{}: unknown key \"{}\"{}", object.where(), shown(key),
                     near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near));
  }
}

}  // namespace

int64_t most_micro_batches(size_t units) { return std::max<int64_t>(1, kMaxVisits / 3 / static_cast<int64_t>(units)); }

Json to_json(const Policy& policy) {
  Json boundaries = Json::array(), units = Json::array();
  for (const auto& b : policy.boundaries)
    boundaries.push_back({{"checkpoint", b.checkpoint}, {"home", name_of(b.home)}});
  for (const auto& u : policy.units) {
    Json unit = {{"retained", u.retained},
                 {"retained_home", name_of(u.retained_home)},
                 {"weight_home", name_of(u.weight_home)},
                 {"optimizer_home", name_of(u.optimizer_home)},
                 {"gradient_home", name_of(u.gradient_home)},
                 {"keep_weights", u.keep_weights}};
    if (policy.update_in_backward) unit["early_update"] = u.early_update;
    units.push_back(std::move(unit));
  }
  Json json = {{"format", 1},
               {"name", policy.name},
               {"model", policy.model},
               {"batch", policy.batch},
               {"micro_batch", policy.micro_batch},
               {"seq", policy.seq},
               {"recompute_whole_unit", policy.recompute_whole_unit},
               {"recompute_whole_block", policy.recompute_whole_block},
               {"update_chases_forward", policy.update_chases_forward},
               {"update_in_backward", policy.update_in_backward},
               {"optimizer_state", policy.optimizer_state},
               {"weight_slots", policy.weight_slots},
               {"gradient_buffers", policy.gradient_buffers},
               {"transfer_slack", policy.transfer_slack},
               {"solver", policy.solver},
               {"predicted_step_s", policy.predicted_step_s},
               {"bound_s", policy.bound_s},
               {"gap", policy.gap},
               {"boundaries", std::move(boundaries)},
               {"units", std::move(units)}};
  Json made_for = Json::object();
  if (policy.made_for.model) made_for["model"] = to_json(*policy.made_for.model);
  if (policy.made_for.machine) made_for["machine"] = to_json(*policy.made_for.machine);
  if (!made_for.empty()) json["made_for"] = std::move(made_for);
  return json;
}

Policy policy_from_json(const Json& json, const std::string& where) {
  const JsonObject object(json, where);
  if (object.integer("format", 0, 1000) != 1) {
    throw InputError("{}: plan format {} is not known here (1 is)", where, object.integer("format", 0, 1000));
  }
  refuse_others(object, {"format", "name", "model", "batch", "micro_batch", "seq", "recompute_whole_unit",
                         "recompute_whole_block", "update_chases_forward", "update_in_backward", "optimizer_state",
                         "weight_slots", "gradient_buffers", "transfer_slack", "solver", "predicted_step_s", "bound_s",
                         "gap", "boundaries", "units", "made_for",
                         // Beside the policy in plan.json: what it was made for.
                         "model_config", "compute", "profile"});
  Policy policy;
  policy.name = object.string("name");
  policy.model = object.string("model");
  policy.batch = object.integer("batch", 1, 1 << 24);
  policy.micro_batch = object.integer("micro_batch", 1, policy.batch);
  policy.seq = object.integer("seq", 1, kMaxTokens / policy.micro_batch);
  policy.recompute_whole_unit = object.boolean_or("recompute_whole_unit", false);
  policy.recompute_whole_block = object.boolean_or("recompute_whole_block", false);
  policy.update_chases_forward = object.boolean_or("update_chases_forward", true);
  policy.update_in_backward = object.boolean_or("update_in_backward", false);
  policy.optimizer_state = object.string_or("optimizer_state", "fp32");
  optim::state_setting_from_name(policy.optimizer_state);  // refuses what it does not know
  policy.weight_slots = static_cast<int>(object.integer_or("weight_slots", 2, 1, 64));
  policy.gradient_buffers = static_cast<int>(object.integer_or("gradient_buffers", 2, 1, 64));
  policy.transfer_slack = static_cast<int>(object.integer_or("transfer_slack", 0, 0, 64));
  policy.solver = object.string_or("solver", "none");
  policy.predicted_step_s = object.number_or("predicted_step_s", 0);
  policy.bound_s = object.number_or("bound_s", 0);
  policy.gap = object.number_or("gap", 0);
  if (object.has("made_for")) {
    const JsonObject made_for = object.object("made_for");
    refuse_others(made_for, {"model", "machine"});
    if (made_for.has("model")) policy.made_for.model = model_facts_from(made_for.object("model"));
    if (made_for.has("machine")) policy.made_for.machine = machine_facts_from(made_for.object("machine"));
  }
  for (const Json& item : array_of(object, "boundaries")) {
    const JsonObject b(item, fmt::format("{}: boundaries[{}]", where, policy.boundaries.size()));
    refuse_others(b, {"checkpoint", "home"});
    policy.boundaries.push_back({b.boolean_or("checkpoint", true), tier_from(b, "home")});
  }
  for (const Json& item : array_of(object, "units")) {
    const JsonObject u(item, fmt::format("{}: units[{}]", where, policy.units.size()));
    refuse_others(u, {"retained", "retained_home", "weight_home", "optimizer_home", "gradient_home", "keep_weights",
                      "early_update"});
    UnitPolicy unit;
    for (const Json& name : array_of(u, "retained")) {
      if (!name.is_string()) throw InputError("{}: \"retained\" must list names of values", u.where());
      unit.retained.push_back(name.get<std::string>());
    }
    unit.retained_home = tier_from(u, "retained_home");
    unit.weight_home = tier_from(u, "weight_home");
    unit.optimizer_home = tier_from(u, "optimizer_home");
    if (u.has("gradient_home")) unit.gradient_home = tier_from(u, "gradient_home");
    unit.keep_weights = u.boolean_or("keep_weights", false);
    unit.early_update = early_update_from(u, policy.update_in_backward);
    policy.units.push_back(std::move(unit));
  }
  return policy;
}

std::vector<std::string> model_differences(const Policy& policy, const graph::Graph& graph) {
  const std::string prints = fmt::format("fingerprint {} in the plan, {} here", shown(policy.model), graph.fingerprint);
  if (!policy.made_for.model) return {prints};
  std::vector<std::string> found = differences(*policy.made_for.model, facts_of(graph));
  if (found.empty()) found.push_back("other keys of config.json, of the same sizes: " + prints);
  return found;
}

void check_against(const Policy& policy, const graph::Graph& graph, const std::string& where) {
  const std::string plan = where.empty() ? fmt::format("plan '{}'", policy.name) : where;
  if (policy.model != graph.fingerprint) {
    throw UsageError("{} was made for another model: {}: make a plan for this one with `lazytrain plan`", plan,
                     fmt::join(model_differences(policy, graph), ", "));
  }
  if (policy.units.size() != graph.units.size() || policy.boundaries.size() + 1 != graph.units.size()) {
    throw InputError("{} has {} units and {} boundaries, the model has {} and {}", plan, policy.units.size(),
                     policy.boundaries.size(), graph.units.size(), graph.units.size() - 1);
  }
  if (policy.seq > graph.max_positions && graph.max_positions > 0) {
    throw InputError("{}: seq {} is more than the model's {} positions", plan, policy.seq, graph.max_positions);
  }
  if (policy.micro_batches() > most_micro_batches(policy.units.size())) {
    throw UsageError(
        "{}: {} micro-batches of {} units are more than a program holds (at most {} here): raise micro_batch", plan,
        policy.micro_batches(), policy.units.size(), most_micro_batches(policy.units.size()));
  }
  for (size_t u = 0; u < policy.units.size(); ++u) {
    try {
      graph::values_by_name(graph.units[u], policy.units[u].retained);
    } catch (const UsageError& error) {
      throw InputError("{}: units[{}]: {}", plan, u, error.what());
    }
  }
  if (!policy.boundaries.front().checkpoint || !policy.boundaries.back().checkpoint) {
    throw InputError("{}: the first and the last boundary must be checkpoints: backward starts from them", plan);
  }
}

}  // namespace lazytrain::plan
