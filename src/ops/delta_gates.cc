#include "ops/delta_gates.h"

#include "ops/row_work.h"

namespace lazytrain::ops {
namespace {
constexpr int64_t kGateFlops = 50;  // two exponentials, a logarithm and a division
}

std::vector<graph::ValueSpec> DeltaGates::outputs() const {
  return {{.name = "beta", .width = heads_}, {.name = "gamma", .width = heads_, .element = graph::Element::kF32}};
}

std::vector<graph::ParameterSpec> DeltaGates::parameters() const {
  return {{.name = "A_log", .shape = {heads_}, .init = graph::Init::kLogUniform},
          {.name = "dt_bias", .shape = {heads_}, .init = graph::Init::kOnes}};
}

graph::Work DeltaGates::forward_work(const graph::Dims& dims) const {
  return row_work(dims, kGateFlops * heads_, 3 * heads_, heads_);
}

graph::Work DeltaGates::backward_work(const graph::Dims& dims) const {
  return row_work(dims, 2 * kGateFlops * heads_, 5 * heads_, heads_);
}

}  // namespace lazytrain::ops
