// What a model's ops take on this machine at the shape of a step: run, not estimated.
#pragma once

#include <vector>

#include "base/dtype.h"
#include "base/thread_pool.h"
#include "graph/graph.h"
#include "hw/profile.h"

namespace lazytrain::runtime {

// Runs every op of each kind of unit, forward and backward, on dims.tokens tokens in documents of dims.context, a few
// times behind one that warms up, and gives the median of each: hw::Profile::ops. Units of layers and head run on
// `pool`, the embedding on `host_pool`, as in a step. Takes the memory of one unit at a time (values, weights, fp32
// gradients), which is free again behind it, and some times the time of a layer. Throws RunError when the system
// refuses the memory.
std::vector<hw::OpSample> time_ops(const graph::Graph& graph, const graph::Dims& dims, DType compute, ThreadPool& pool,
                                   ThreadPool& host_pool);

}  // namespace lazytrain::runtime
