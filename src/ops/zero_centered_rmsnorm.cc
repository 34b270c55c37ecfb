#include "ops/zero_centered_rmsnorm.h"

#include "ops/row_work.h"

namespace lazytrain::ops {

std::vector<graph::ValueSpec> ZeroCenteredRmsNorm::outputs() const {
  return {{.name = "out", .width = groups_ * width_},
          {.name = "rstd", .width = groups_, .element = graph::Element::kF32}};
}

std::vector<graph::ParameterSpec> ZeroCenteredRmsNorm::parameters() const {
  return {{.name = "weight", .shape = {width_}, .init = graph::Init::kZeros}};
}

graph::Work ZeroCenteredRmsNorm::forward_work(const graph::Dims& dims) const {
  const int64_t width = groups_ * width_;
  return row_work(dims, 5 * width, 2 * width, groups_);
}

graph::Work ZeroCenteredRmsNorm::backward_work(const graph::Dims& dims) const {
  const int64_t width = groups_ * width_;
  return row_work(dims, 11 * width, 3 * width, groups_);
}

}  // namespace lazytrain::ops
