// What work costs on a machine: the one place where declared FLOPs and bytes become seconds.
#pragma once

#include <cstdint>

#include "graph/graph.h"
#include "graph/pass.h"
#include "hw/profile.h"

namespace lazytrain::plan {

// Bytes a parameter that the update of fp32 state reads and writes: bf16 gradient, both weight halves, m and v. What a
// profile's host_bandwidth is measured against.
inline constexpr double kUpdateBytes = 26;

// Bytes a parameter of rounding a finished gradient into its store: fp32 in, bf16 out.
inline constexpr double kAccumulateBytes = 6;

// Bytes a parameter of reading a stored bf16 gradient for its norm.
inline constexpr double kNormBytes = 2;

// Bytes a parameter that the update touches when its state takes `state_bytes` a parameter: gradient read, weights and
// state read and written.
double update_bytes(double state_bytes);
// Of one update of that many parameters with `state_bytes` of state in all, by a memory of that bandwidth.
double update_seconds(int64_t parameters, int64_t state_bytes, double bandwidth);

// Roofline: FLOPs over the sustained rate of their kind (attention and other ops that mix tokens, or products over that
// many rows), bytes over bandwidth, whichever is longer. Where the profile has samples of the op in that direction, by
// as much longer as the sample with the nearest work took: a sample's own work takes what it took.
double op_seconds(const graph::OpKind& op, bool backward, const graph::Dims& dims, const hw::Profile& profile);

// The steps first_step to last_step of a pass, one after the other.
double pass_seconds(const graph::Unit& unit, const graph::Pass& pass, int first_step, int last_step,
                    const graph::Dims& dims, const hw::Profile& profile);
inline double pass_seconds(const graph::Unit& unit, const graph::Pass& pass, const graph::Dims& dims,
                           const hw::Profile& profile) {
  return pass_seconds(unit, pass, 0, static_cast<int>(pass.steps.size()), dims, profile);
}

}  // namespace lazytrain::plan
