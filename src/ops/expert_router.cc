#include "ops/expert_router.h"

#include "ops/row_work.h"

namespace lazytrain::ops {

std::vector<graph::ValueSpec> ExpertRouter::outputs() const {
  return {{.name = "scores", .width = chosen_, .element = graph::Element::kF32},
          {.name = "experts", .width = chosen_, .element = graph::Element::kF32}};
}

std::vector<graph::ParameterSpec> ExpertRouter::parameters() const {
  return {{.name = "weight", .shape = {experts_, hidden_}, .init = graph::Init::kNormal},
          {.name = "bias", .shape = {experts_}, .init = graph::Init::kZeros}};
}

graph::Work ExpertRouter::forward_work(const graph::Dims& dims) const {
  graph::Work work = row_work(dims, 2 * hidden_ * experts_, hidden_ + experts_, 2 * chosen_);
  work.bytes += static_cast<double>(dims.activation_bytes * hidden_ * experts_);
  return work;
}

graph::Work ExpertRouter::backward_work(const graph::Dims& dims) const {
  graph::Work work = row_work(dims, 4 * hidden_ * experts_, 2 * hidden_ + experts_, 3 * chosen_);
  work.bytes += static_cast<double>((dims.activation_bytes + 4) * hidden_ * experts_);
  return work;
}

}  // namespace lazytrain::ops
