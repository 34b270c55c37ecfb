#include "ops/clamped_swiglu.h"

#include "ops/row_work.h"

namespace lazytrain::ops {

graph::Work ClampedSwiGlu::forward_work(const graph::Dims& dims) const {
  return row_work(dims, 24 * width_, 3 * width_);
}

graph::Work ClampedSwiGlu::backward_work(const graph::Dims& dims) const {
  return row_work(dims, 34 * width_, 5 * width_);
}

}  // namespace lazytrain::ops
