// Random points of the policy space, for the tests of planning and running.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "base/rng.h"
#include "graph/pass.h"
#include "hw/profile.h"
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

// The same for a machine of several tiers: any home that a program can serve, disk included.
inline Policy random_tiered_policy(const graph::Graph& graph, const Shape& shape, uint64_t seed) {
  Policy policy = random_policy(graph, shape, seed);
  const CounterRng rng(seed, 4);
  uint64_t draw = 0;
  const auto chance = [&](double p) { return rng.uniform(draw++) < p; };
  const auto any_tier = [&] { return static_cast<Tier>(rng.below(draw++, 3)); };
  const auto off_device = [&] { return chance(0.3) ? Tier::kDisk : Tier::kHost; };
  for (BoundaryPolicy& boundary : policy.boundaries) boundary.home = any_tier();
  for (size_t u = 0; u < policy.units.size(); ++u) {
    UnitPolicy& unit = policy.units[u];
    unit.retained_home = any_tier();
    const bool resident = u > 0 && chance(0.2);
    unit.weight_home = resident ? Tier::kDevice : off_device();
    unit.gradient_home = off_device();
    unit.optimizer_home = resident ? Tier::kDevice : off_device();
    unit.keep_weights = !resident && chance(0.2);
  }
  policy.transfer_slack = static_cast<int>(rng.below(draw++, 3));
  policy.update_chases_forward = chance(0.7);
  if (chance(0.5)) policy.optimizer_state = chance(0.5) ? "8bit" : "hybrid:0.25";
  return policy;
}

// The same with updates in backward: none, a part or all of each unit's. At least the first layer's can be.
inline Policy with_early_updates(Policy policy, uint64_t seed) {
  const CounterRng rng(seed, 5);
  policy.update_in_backward = true;
  for (size_t u = 0; u < policy.units.size(); ++u) {
    policy.units[u].early_update = std::clamp(2 * rng.uniform(u) - 0.5, 0.0, 1.0);
  }
  UnitPolicy& first = policy.units[1];
  first.weight_home = first.optimizer_home = first.gradient_home = Tier::kHost;
  first.early_update = std::max(first.early_update, 0.25);
  return policy;
}

// A machine of three tiers on which a toy graph's windows and transfers take similar times.
inline hw::Profile tiered_machine() {
  hw::Profile profile;
  profile.name = "toy tiers";
  profile.gemm_flops = 1e9;
  profile.memory_bandwidth = 1e9;
  profile.host_bandwidth = 2e8;
  profile.launch_s = 1e-6;
  profile.links = {2e7, 2e7, 3e7, 1e7, 5e6};
  profile.device_bytes = int64_t{1} << 30;
  profile.host_bytes = int64_t{1} << 32;
  profile.disk_bytes = int64_t{1} << 36;
  return profile;
}

// The same policy under another name: for saying that two policies differ in more than that.
inline Policy renamed(Policy policy, const std::string& name) {
  policy.name = name;
  return policy;
}

}  // namespace lazytrain::plan::testing
