#include "plan/made_for.h"

#include <fmt/format.h>

#include "base/units.h"

namespace lazytrain::plan {
namespace {

constexpr int64_t kMany = int64_t{1} << 60;

}  // namespace

ModelFacts facts_of(const graph::Graph& graph) {
  return {graph.family, graph.layers(), graph.hidden, graph.vocabulary, graph.parameter_count(), graph.tied};
}

MachineFacts facts_of(const hw::Profile& machine) {
  return {machine.name, machine.one_memory, machine.device_bytes, machine.host_bytes, machine.disk_bytes};
}

Json to_json(const ModelFacts& facts) {
  return {{"family", facts.family},         {"layers", facts.layers},         {"hidden", facts.hidden},
          {"vocabulary", facts.vocabulary}, {"parameters", facts.parameters}, {"tied", facts.tied}};
}

Json to_json(const MachineFacts& facts) {
  return {{"name", facts.name},
          {"one_memory", facts.one_memory},
          {"device_bytes", facts.device_bytes},
          {"host_bytes", facts.host_bytes},
          {"disk_bytes", facts.disk_bytes}};
}

ModelFacts model_facts_from(const JsonObject& object) {
  return {object.string("family"),
          object.integer("layers", 0, kMany),
          object.integer("hidden", 0, kMany),
          object.integer("vocabulary", 0, kMany),
          object.integer("parameters", 0, kMany),
          object.boolean_or("tied", false)};
}

MachineFacts machine_facts_from(const JsonObject& object) {
  return {object.string("name"), object.boolean_or("one_memory", false), object.integer("device_bytes", 0, kMany),
          object.integer("host_bytes", 0, kMany), object.integer("disk_bytes", 0, kMany)};
}

std::vector<std::string> differences(const ModelFacts& in_the_plan, const ModelFacts& here) {
  std::vector<std::string> found;
  const auto compare = [&](std::string_view what, const auto& there, const auto& own) {
    if (there != own) found.push_back(difference(what, there, own));
  };
  compare("family", shown(in_the_plan.family), here.family);
  compare("layers", in_the_plan.layers, here.layers);
  compare("hidden", in_the_plan.hidden, here.hidden);
  compare("vocabulary", in_the_plan.vocabulary, here.vocabulary);
  compare("parameters", in_the_plan.parameters, here.parameters);
  compare("tied head", in_the_plan.tied, here.tied);
  return found;
}

std::string describe(const MachineFacts& facts) {
  const std::string name = shown(facts.name);
  if (facts.one_memory) return fmt::format("{} (one memory of {})", name, format_bytes(facts.host_bytes));
  return fmt::format("{} (device {}, host {})", name, format_bytes(facts.device_bytes), format_bytes(facts.host_bytes));
}

}  // namespace lazytrain::plan
