#include "ops/sigmoid_gate.h"

#include "ops/row_work.h"

namespace lazytrain::ops {
namespace {
constexpr int64_t kSigmoidFlops = 16;  // an exponential and a division, as vector code computes them
}

graph::Work SigmoidGate::forward_work(const graph::Dims& dims) const {
  return row_work(dims, (kSigmoidFlops + 1) * width_, 3 * width_);
}

graph::Work SigmoidGate::backward_work(const graph::Dims& dims) const {
  return row_work(dims, (kSigmoidFlops + 5) * width_, 5 * width_);
}

}  // namespace lazytrain::ops
