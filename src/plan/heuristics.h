// Named policies: published systems and simple rules as points of one policy space.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/policy.h"

namespace lazytrain::plan {

struct Shape {
  int64_t batch = 0;
  int64_t micro_batch = 0;
  int64_t seq = 0;
};

// Everything on the device; only row ops (norms, the SwiGLU product) are run again in backward.
Policy resident(const graph::Graph& graph, const Shape& shape);
// MegaTrain's executor: a checkpoint every 4 layers, the whole block run again, then each layer once more before its
// backward: three layer-forwards a step, weights streamed for each; the update of everything behind everything.
Policy megatrain(const graph::Graph& graph, const Shape& shape);

std::vector<std::string> policy_names();
// Throws UsageError with the nearest known name.
Policy named_policy(std::string_view name, const graph::Graph& graph, const Shape& shape);

}  // namespace lazytrain::plan
