// Random points of the policy space, for the tests of planning and running.
#pragma once

#include <fmt/format.h>

#include "base/rng.h"
#include "graph/pass.h"
#include "plan/heuristics.h"
#include "plan/policy.h"

namespace lazytrain::plan::testing {

// Random checkpoints, retained subsets of any values, homes, slots and flags; a function of graph, shape and seed.
inline Policy random_policy(const graph::Graph& graph, const Shape& shape, uint64_t seed) {
  Policy policy = resident(graph, shape);
  policy.name = fmt::format("random {}", seed);
  const CounterRng rng(seed, 3);
  uint64_t draw = 0;
  const auto chance = [&](double p) { return rng.uniform(draw++) < p; };
  const double checkpoints = rng.uniform(draw++), retained = rng.uniform(draw++);
  for (size_t b = 0; b < policy.boundaries.size(); ++b) {
    const bool end = b == 0 || b + 1 == policy.boundaries.size();
    policy.boundaries[b].checkpoint = end || chance(checkpoints);
    policy.boundaries[b].home = chance(0.5) ? Tier::kHost : Tier::kDevice;
  }
  for (size_t u = 0; u < policy.units.size(); ++u) {
    UnitPolicy& unit = policy.units[u];
    unit = {};
    unit.weight_home = chance(0.5) ? Tier::kHost : Tier::kDevice;
    unit.optimizer_home = chance(0.5) ? Tier::kHost : Tier::kDevice;
    unit.retained_home = chance(0.5) ? Tier::kHost : Tier::kDevice;
    const bool none = chance(0.2);
    for (const auto& value : graph.units[u].values) {
      if (!none && chance(retained)) unit.retained.push_back(value.name);
    }
  }
  policy.recompute_whole_unit = chance(0.3);
  policy.recompute_whole_block = chance(0.3);
  policy.weight_slots = 1 + static_cast<int>(rng.below(draw++, 3));
  policy.gradient_buffers = 1 + static_cast<int>(rng.below(draw++, 3));
  return policy;
}

// The same policy under another name: for saying that two policies differ in more than that.
inline Policy renamed(Policy policy, const std::string& name) {
  policy.name = name;
  return policy;
}

}  // namespace lazytrain::plan::testing
