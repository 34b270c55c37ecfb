#include "plan/disk_policies.h"

namespace lazytrain::plan {

std::vector<Policy> disk_policies(const graph::Graph& graph, const Shape& shape) {
  std::vector<Policy> policies;
  Policy policy = resident(graph, shape);
  const auto next = [&](const char* name) {
    policy.name = name;
    policies.push_back(policy);
  };
  for (UnitPolicy& unit : policy.units) {
    unit.weight_home = Tier::kHost;
    unit.optimizer_home = Tier::kDisk;
  }
  next("state-on-disk");
  for (UnitPolicy& unit : policy.units) unit.retained.clear();
  next("state-on-disk-recompute");
  for (UnitPolicy& unit : policy.units) unit.weight_home = unit.gradient_home = Tier::kDisk;
  next("weights-on-disk");
  for (BoundaryPolicy& boundary : policy.boundaries) boundary.home = Tier::kDisk;
  policy.weight_slots = 1;
  policy.gradient_buffers = 1;
  next("all-on-disk");
  return policies;
}

}  // namespace lazytrain::plan
