#include "ops/l2norm.h"

#include "ops/row_work.h"

namespace lazytrain::ops {

std::vector<graph::ValueSpec> L2Norm::outputs() const {
  return {{.name = "out", .width = heads_ * width_},
          {.name = "rnorm", .width = heads_, .element = graph::Element::kF32}};
}

graph::Work L2Norm::forward_work(const graph::Dims& dims) const {
  return row_work(dims, 3 * heads_ * width_, 2 * heads_ * width_, heads_);
}

graph::Work L2Norm::backward_work(const graph::Dims& dims) const {
  return row_work(dims, 5 * heads_ * width_, 3 * heads_ * width_, heads_);
}

}  // namespace lazytrain::ops
