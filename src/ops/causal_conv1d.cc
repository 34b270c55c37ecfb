#include "ops/causal_conv1d.h"

#include "ops/row_work.h"

namespace lazytrain::ops {
namespace {
constexpr int64_t kSiluFlops = 18;
}

std::vector<graph::ParameterSpec> CausalConv1d::parameters() const {
  return {{.name = "weight", .shape = {channels_, 1, taps_}, .init = graph::Init::kNormal}};
}

graph::Work CausalConv1d::forward_work(const graph::Dims& dims) const {
  return row_work(dims, (2 * taps_ + kSiluFlops) * channels_, 2 * channels_);
}

graph::Work CausalConv1d::backward_work(const graph::Dims& dims) const {
  // The sum again, dx and dw; reads x and dout, writes dx.
  return row_work(dims, (6 * taps_ + kSiluFlops + 4) * channels_, 3 * channels_);
}

}  // namespace lazytrain::ops
