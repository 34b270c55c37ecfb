#include "ops/split.h"

#include "ops/row_work.h"

namespace lazytrain::ops {

std::vector<graph::ValueSpec> Split::outputs() const {
  std::vector<graph::ValueSpec> result;
  for (const SplitPart& part : parts_) result.push_back({.name = part.name, .width = groups_ * part.width});
  return result;
}

graph::Work Split::forward_work(const graph::Dims& dims) const {
  int64_t width = 0;
  for (const SplitPart& part : parts_) width += groups_ * part.width;
  return row_work(dims, 0, 2 * width);
}

}  // namespace lazytrain::ops
