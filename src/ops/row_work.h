// Work of ops that pass over their values once, row by row.
#pragma once

#include <cstdint>

#include "graph/op_kind.h"

namespace lazytrain::ops {

// Of a call on dims.tokens rows: `flops`, `activations` (elements of the activation dtype read and written) and
// `statistics` (fp32 elements read and written), each a token.
inline graph::Work row_work(const graph::Dims& dims, int64_t flops, int64_t activations, int64_t statistics = 0) {
  const auto t = static_cast<double>(dims.tokens);
  return {.flops = t * static_cast<double>(flops),
          .bytes = t * static_cast<double>(activations * dims.activation_bytes + 4 * statistics)};
}

}  // namespace lazytrain::ops
