// Policies of one memory with a disk behind it, by how much of the state and of the activations is on the disk.
#pragma once

#include <vector>

#include "plan/heuristics.h"

namespace lazytrain::plan {

// From what needs most memory to what needs least: `state-on-disk` (optimizer state; activations as `resident`),
// `state-on-disk-recompute` (and every boundary kept, the rest recomputed), `weights-on-disk` (weights, gradients and
// optimizer state), `all-on-disk` (boundaries too, one unit's weights and gradients in memory at a time).
std::vector<Policy> disk_policies(const graph::Graph& graph, const Shape& shape);

}  // namespace lazytrain::plan
