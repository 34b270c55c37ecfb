// Moves what outlives a step from the places of one program to those of another of the same model.
#pragma once

#include <array>
#include <cstdint>

#include "graph/graph.h"
#include "plan/program.h"
#include "runtime/model_state.h"
#include "runtime/tier_memory.h"

namespace lazytrain::runtime {

// The most bytes that both programs hold on each tier at any time of carry_state, by tier: in memory the state of the
// units that were carried and of those that are still to be, on disk both extents.
std::array<int64_t, 3> carry_bytes(const graph::Graph& graph, const plan::Program& from, const plan::Program& to);

struct CarriedFrom {
  const plan::Program& program;
  TierMemory& memory;
  const ModelState& state;
};

// Copies weights and moments unit by unit, bit for bit, and gives the memory of what was copied back to the system on
// the way: nothing of `from` but its disk is worth anything afterwards. Stored gradients are not carried: their update
// must have run. No lane may be running. Throws RunError when a disk fails; the state is lost then.
void carry_state(const CarriedFrom& from, ModelState& to);

}  // namespace lazytrain::runtime
