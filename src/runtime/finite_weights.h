// Weights that are not numbers: what a file that was damaged, or a training that diverged, leaves.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/tensor_view.h"
#include "graph/graph.h"
#include "runtime/model_state.h"

namespace lazytrain::runtime {

struct BrokenWeight {
  const graph::Parameter* parameter;
  int64_t values;  // that are NaN or infinite

  // "tensor 'NAME': 3 of its 100 values are not finite (NaN or infinite)"
  std::string describe() const;
};

// The first parameter of the graph with a value that is not finite. `weight` gives its values, BF16 or F32.
std::optional<BrokenWeight> find_not_finite(const graph::Graph& graph,
                                            const std::function<TensorView(int unit, int parameter)>& weight);
// Of the hi halves of a state, wherever they lie.
std::optional<BrokenWeight> find_not_finite(const ModelState& state);

}  // namespace lazytrain::runtime
