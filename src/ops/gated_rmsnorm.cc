#include "ops/gated_rmsnorm.h"

#include "ops/row_work.h"

namespace lazytrain::ops {
namespace {
constexpr int64_t kSiluFlops = 18;
}

std::vector<graph::ValueSpec> GatedRmsNorm::outputs() const {
  return {{.name = "out", .width = heads_ * width_},
          {.name = "rstd", .width = heads_, .element = graph::Element::kF32}};
}

std::vector<graph::ParameterSpec> GatedRmsNorm::parameters() const {
  return {{.name = "weight", .shape = {width_}, .init = graph::Init::kOnes}};
}

graph::Work GatedRmsNorm::forward_work(const graph::Dims& dims) const {
  const int64_t width = heads_ * width_;
  return row_work(dims, (kSiluFlops + 5) * width, 3 * width, heads_);
}

graph::Work GatedRmsNorm::backward_work(const graph::Dims& dims) const {
  const int64_t width = heads_ * width_;
  return row_work(dims, (kSiluFlops + 20) * width, 5 * width, heads_);
}

}  // namespace lazytrain::ops
