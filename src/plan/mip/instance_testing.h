// Random small instances in which links, memory and compute all matter, for tests.
#pragma once

#include <string>

#include "base/rng.h"
#include "plan/mip/instance.h"

namespace lazytrain::plan::testing {

struct RandomInstance {
  int units = 3;
  bool host = true, disk = true;  // tiers that exist
  bool disk_homes = false, update_in_backward = false, chase = true, extra_updates = false;
  bool sets_leave_behind = false, state_alone_on_disk = false;
  int state_pieces = 1;
};

// Windows of seconds and items of GB over links of GB/s, so that ties of 1e-6 s are below a millionth of a step.
inline Instance random_instance(const RandomInstance& kind, uint64_t seed) {
  const CounterRng rng(seed, 77);
  uint64_t draw = 0;
  const auto between = [&](double low, double high) { return low + (high - low) * rng.uniform(draw++); };
  Instance in;
  in.name = "random " + std::to_string(seed);
  in.units = kind.units;
  in.max_block = 1 + static_cast<int>(rng.below(draw++, 4));
  in.gap = 0;
  const double boundary = between(0.5, 4), weight = between(0.2, 6), homes = between(0.3, 1.5), set = between(1, 8);
  const bool are_equal = rng.below(draw++, 2) == 0;
  double boundaries = 0;
  for (int u = 0; u < kind.units; ++u) {
    const double factor = are_equal ? 1 : between(0.6, 1.5);
    in.forward_s.push_back(3 * factor);
    in.backward_s.push_back(6 * factor);
    in.boundary_gb.push_back(boundary * factor);
    in.weight_gb.push_back(weight * factor);
    in.grad_gb.push_back(weight * factor);
    in.update_s.push_back(between(0.2, 4));
    in.device_home_gb.push_back(4 * homes * weight * factor);
    in.device_update_s.push_back(0.1 * factor);
    in.forward_workspace_gb.push_back(0.5 * factor);
    const double workspace = rng.below(draw++, 4) == 0 ? between(0, 0.5) : 0.5;
    in.menu.push_back({{{}, 0, 2.5 * factor, 0.5}, {{"values"}, set * factor, between(0, 1), workspace}});
    boundaries += in.boundary_gb.back();
  }
  in.head = {between(1, 4), between(0.1, 3), between(0.1, 3)};
  const double rate = between(0.5, 3);
  in.links_gbs = {rate, rate * between(0.8, 1.2), rate * between(1, 2), rate * between(0.2, 0.8),
                  rate * between(0.2, 0.8)};
  in.budget_gb.device = 1 + boundary * 3 + between(0, 1) * (boundaries + set * kind.units + 2 * weight);
  if (rng.below(draw++, 5) == 0) in.budget_gb.device *= 0.5;
  in.budget_gb.host = kind.host ? between(0, 1) * (boundaries + set * kind.units) : 0;
  in.budget_gb.disk = kind.disk ? between(0, 1) * (boundaries + set) : 0;
  if (kind.disk_homes) {
    for (int u = 0; u < kind.units; ++u) {
      in.host_state_gb.push_back(between(1, 4));
      in.host_weight_gb.push_back(between(0.5, 2));
    }
    in.budget_gb.host += between(0, 5) * kind.units;
    in.budget_gb.disk += between(0, 5) * kind.units;
  }
  in.update_in_backward = kind.update_in_backward;
  in.chase = kind.chase;
  in.state_pieces = kind.state_pieces;
  in.sets_leave_behind = kind.sets_leave_behind;
  if (kind.state_alone_on_disk) in.disk_weights = in.disk_activations = false;
  if (kind.extra_updates) {
    in.embedding_update_s = between(0, 3);
    in.head_update_s = between(0.1, 5);
    in.lead_s = between(0, 1);
    in.tail_s = between(0, 1);
    for (int u = 0; kind.update_in_backward && u < kind.units; ++u) in.accumulate_s.push_back(between(0, 8));
    if (kind.disk_homes) in.host_end_gb = between(0, 0.3) * in.budget_gb.host;
  }
  return in;
}

}  // namespace lazytrain::plan::testing
