// Initial values of a model that is trained from nothing.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "graph/graph.h"

namespace lazytrain::model {

// Elements [first, first + out.size()) of a parameter: normal(0, initializer_range), ones or zeros, as its declaration
// says. A value is a function of seed, the parameter's name and the element's position alone: the same whatever the
// threads, the order of calls and the ranges. Throws RunError when the range is not inside the parameter.
void fill_initial(const graph::Parameter& parameter, double initializer_range, uint64_t seed, std::span<float> out,
                  int64_t first = 0, ThreadPool* pool = nullptr);

}  // namespace lazytrain::model
