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

// Every boundary a checkpoint, homes as in Policy's defaults, nothing retained: what a policy starts from.
Policy blank_policy(std::string_view name, const graph::Graph& graph, const Shape& shape);

// Everything on the device; only row ops (norms, the SwiGLU product) are run again in backward.
Policy resident(const graph::Graph& graph, const Shape& shape);
// MegaTrain's executor: a checkpoint every 4 layers, the whole block run again, then each layer once more before its
// backward: three layer-forwards a step, weights streamed for each; the update of everything behind everything.
Policy megatrain(const graph::Graph& graph, const Shape& shape);
// ZeRO-3 with parameters and optimizer on the host and activation checkpointing: each layer run again before its
// backward, its input kept on the device; the update behind everything.
Policy zero3_offload(const graph::Graph& graph, const Shape& shape);
// Each boundary in host memory; of each layer only what backward reads is run again; the update chases the forward.
Policy every_layer(const graph::Graph& graph, const Shape& shape);

std::vector<std::string> policy_names();
// Throws UsageError with the nearest of `known` when `name` is none of them; `where` is the option or key it stands in.
void check_policy_name(std::string_view name, std::string_view where, const std::vector<std::string>& known);
// Throws UsageError with the nearest known name.
Policy named_policy(std::string_view name, const graph::Graph& graph, const Shape& shape);

}  // namespace lazytrain::plan
