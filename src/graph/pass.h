// Passes: the forward, recompute, backward and loss programs of a unit, derived from what its ops declare.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace lazytrain::graph {

// The buffer in which a value or gradient of a pass lies.
enum class Place : uint8_t {
  kNowhere,   // not needed in this pass
  kInput,     // the boundary before the unit
  kOutput,    // the boundary behind it
  kGradient,  // the boundary gradient: the output's on entry, the input's on return, in place
  kRetained,  // kept from forward for backward
  kWorkspace  // alive inside the pass only
};

struct Location {
  Place place = Place::kNowhere;
  int64_t offset = 0;  // bytes into that buffer
};

struct Step {
  int op = 0;
  bool backward = false;
  std::vector<bool> add_input_gradient;  // per input of a backward step: add to the gradient that is there
};

// One pass at fixed dims. The steps of a backward pass begin with `recompute_steps` forward steps.
struct Pass {
  std::vector<Step> steps;
  int recompute_steps = 0;
  std::vector<Location> values;     // by ValueId
  std::vector<Location> gradients;  // by ValueId
  int64_t workspace_bytes = 0;
};

// The values of a unit that are kept from forward for its backward.
struct RetainedSet {
  std::vector<ValueId> values;   // ascending
  std::vector<int64_t> offsets;  // bytes into the retained buffer, one a value
  int64_t bytes = 0;
};

int64_t value_bytes(const ValueSpec& value, const Dims& dims);  // rounded up to a cache line
// Each value once; the unit's input and output are left out, since they are boundaries.
RetainedSet retained_set(const Unit& unit, std::vector<ValueId> values, const Dims& dims);
// Looks names up; an unknown one is a UsageError that lists the unit's values.
std::vector<ValueId> values_by_name(const Unit& unit, const std::vector<std::string>& names);

// Everything that backward reads and that is not the unit's input.
std::vector<ValueId> backward_needs(const Unit& unit);
// The least to keep so that only cheap ops (row ops) are run again.
std::vector<ValueId> costly_to_recompute(const Unit& unit);

// The ops to run again, ascending, so that backward finds all it reads when `retained` was kept.
std::vector<int> recompute_slice(const Unit& unit, const std::vector<ValueId>& retained);

Pass forward_pass(const Unit& unit, const RetainedSet& retained, const Dims& dims);
// `whole_unit`: run every op again, as engines do that know no slices.
Pass backward_pass(const Unit& unit, const RetainedSet& retained, const Dims& dims, bool whole_unit);
// The head: forward, loss and backward in one.
Pass loss_pass(const Unit& unit, const Dims& dims);

Work work_of(const Unit& unit, const Pass& pass, const Dims& dims, int first_step, int last_step);

}  // namespace lazytrain::graph
