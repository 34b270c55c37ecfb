#include "ops/expert_linear.h"

#include <algorithm>

#include "ops/row_work.h"

namespace lazytrain::ops {

std::vector<graph::ValueSpec> ExpertLinear::outputs() const {
  return {{.name = shape_.parameter, .width = shape_.combine ? shape_.out : shape_.chosen * shape_.out}};
}

std::vector<graph::ParameterSpec> ExpertLinear::parameters() const {
  return {{.name = shape_.parameter, .shape = {shape_.experts, shape_.in, shape_.out}, .init = graph::Init::kNormal},
          {.name = shape_.parameter + "_bias", .shape = {shape_.experts, shape_.out}, .init = graph::Init::kZeros}};
}

graph::Reads ExpertLinear::backward_reads() const {
  return shape_.combine ? graph::Reads{.inputs = {0, 1, 2}, .outputs = {}}
                        : graph::Reads{.inputs = {0, 1}, .outputs = {}};
}

double ExpertLinear::weights_touched(const graph::Dims& dims) const {
  const int64_t experts = std::min(shape_.experts, dims.tokens * shape_.chosen);
  return static_cast<double>(experts) * static_cast<double>(shape_.in * shape_.out);
}

graph::Work ExpertLinear::forward_work(const graph::Dims& dims) const {
  graph::Work work = row_work(dims, 2 * shape_.chosen * shape_.in * shape_.out,
                              shape_.chosen * (shape_.in + shape_.out), 2 * shape_.chosen);
  work.bytes += static_cast<double>(dims.activation_bytes) * weights_touched(dims);
  return work;
}

graph::Work ExpertLinear::backward_work(const graph::Dims& dims) const {
  graph::Work work = row_work(dims, 4 * shape_.chosen * shape_.in * shape_.out,
                              2 * shape_.chosen * (shape_.in + shape_.out), 2 * shape_.chosen);
  // The matrices are read for dx; dW of every expert is written in fp32, touched or not.
  work.bytes += static_cast<double>(dims.activation_bytes) * weights_touched(dims) +
                4 * static_cast<double>(shape_.experts) * static_cast<double>(shape_.in * shape_.out);
  return work;
}

}  // namespace lazytrain::ops
