// What a plan was made for, in figures that a person knows: a plan of something else is refused by what differs.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "graph/graph.h"
#include "hw/profile.h"

namespace lazytrain::plan {

struct ModelFacts {
  std::string family;
  int64_t layers = 0, hidden = 0, vocabulary = 0, parameters = 0;
  bool tied = false;
  friend bool operator==(const ModelFacts&, const ModelFacts&) = default;
};

struct MachineFacts {
  std::string name;
  bool one_memory = false;
  int64_t device_bytes = 0, host_bytes = 0, disk_bytes = 0;
  friend bool operator==(const MachineFacts&, const MachineFacts&) = default;
};

ModelFacts facts_of(const graph::Graph& graph);
MachineFacts facts_of(const hw::Profile& machine);

Json to_json(const ModelFacts& facts);
Json to_json(const MachineFacts& facts);
// Throw InputError naming the key.
ModelFacts model_facts_from(const JsonObject& object);
MachineFacts machine_facts_from(const JsonObject& object);

// "hidden 896 in the plan, 576 here".
template <typename T>
std::string difference(std::string_view what, const T& in_the_plan, const T& here) {
  return fmt::format("{} {} in the plan, {} here", what, in_the_plan, here);
}
// A difference a figure; empty when there is none.
std::vector<std::string> differences(const ModelFacts& in_the_plan, const ModelFacts& here);

// "rtx3090 (device 24.9 GB, host 128 GB)", "this (one memory of 24.0 GB)".
std::string describe(const MachineFacts& facts);

}  // namespace lazytrain::plan
