#include "plan/heuristics.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "graph/pass.h"

namespace lazytrain::plan {
namespace {

constexpr int kMegaTrainInterval = 4;  // layers between two checkpoints

using Heuristic = Policy (*)(const graph::Graph&, const Shape&);

const std::map<std::string, Heuristic, std::less<>>& heuristics() {
  static const std::map<std::string, Heuristic, std::less<>> table = {
      {"every-layer", every_layer}, {"megatrain", megatrain}, {"resident", resident}, {"zero3-offload", zero3_offload}};
  return table;
}

}  // namespace

Policy blank_policy(std::string_view name, const graph::Graph& graph, const Shape& shape) {
  Policy policy;
  policy.name = name;
  policy.model = graph.fingerprint;
  policy.batch = shape.batch;
  policy.micro_batch = shape.micro_batch;
  policy.seq = shape.seq;
  policy.boundaries.resize(graph.units.size() - 1);
  policy.units.resize(graph.units.size());
  return policy;
}

Policy resident(const graph::Graph& graph, const Shape& shape) {
  Policy policy = blank_policy("resident", graph, shape);
  for (size_t u = 0; u < graph.units.size(); ++u) {
    policy.units[u].weight_home = Tier::kDevice;
    policy.units[u].optimizer_home = Tier::kDevice;
    if (graph.units[u].kind != graph::UnitKind::kLayer) continue;
    for (const auto id : graph::costly_to_recompute(graph.units[u])) {
      policy.units[u].retained.push_back(graph.units[u].values[static_cast<size_t>(id)].name);
    }
  }
  return policy;
}

Policy megatrain(const graph::Graph& graph, const Shape& shape) {
  Policy policy = blank_policy("megatrain", graph, shape);
  const size_t last = policy.boundaries.size() - 1;
  for (size_t i = 0; i < policy.boundaries.size(); ++i) {
    policy.boundaries[i].checkpoint = i % kMegaTrainInterval == 0 || i == last;
  }
  policy.recompute_whole_unit = true;
  policy.recompute_whole_block = true;
  policy.update_chases_forward = false;
  return policy;
}

Policy zero3_offload(const graph::Graph& graph, const Shape& shape) {
  Policy policy = blank_policy("zero3-offload", graph, shape);
  policy.recompute_whole_unit = true;
  policy.update_chases_forward = false;
  return policy;
}

Policy every_layer(const graph::Graph& graph, const Shape& shape) {
  Policy policy = blank_policy("every-layer", graph, shape);
  for (size_t i = 0; i + 1 < policy.boundaries.size(); ++i) policy.boundaries[i].home = Tier::kHost;
  return policy;
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const auto& [name, heuristic] : heuristics()) names.push_back(name);
  return names;
}

void check_policy_name(std::string_view name, std::string_view where, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  const std::string near = nearest(name, known);
  throw UsageError("{}: '{}' is not a policy; known are {}{}", where, name, fmt::join(known, ", "),
                   near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
}

Policy named_policy(std::string_view name, const graph::Graph& graph, const Shape& shape) {
  check_policy_name(name, "plan.policy", policy_names());
  return heuristics().find(name)->second(graph, shape);
}

}  // namespace lazytrain::plan
