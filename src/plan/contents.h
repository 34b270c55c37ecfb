// The half of the validator that knows what buffers hold.
#pragma once

#include <string>
#include <vector>

#include "plan/program.h"

namespace lazytrain::plan {

// Follows the instructions in their order and proves that each finds in its buffers what its work needs (the boundary
// of that unit and micro-batch, weights after their update, gradients of all micro-batches before they are stored, ...)
// and runs the steps of a layout of its own. Meaningful for programs whose conflicting uses are ordered: then every
// run leaves what this order leaves. Returns the faults.
std::vector<std::string> check_contents(const Program& program);

}  // namespace lazytrain::plan
