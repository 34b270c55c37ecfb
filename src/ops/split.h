// Cuts the columns of each head into parts: a copy, no arithmetic. Declared for planning; there is no kernel.
#pragma once

#include <string>

#include "graph/op_kind.h"

namespace lazytrain::ops {

// One part: its name as an output and its columns a group.
struct SplitPart {
  std::string name;
  int64_t width = 0;
};

// Input [T, groups · Σ widths], every group with its parts side by side; output i [T, groups · width_i]. The gated
// attention of Qwen3.5 splits inside each head (groups = heads), the DeltaNet splits whole rows (groups = 1).
class Split final : public graph::OpKind {
 public:
  Split(int64_t groups, std::vector<SplitPart> parts) : groups_(groups), parts_(std::move(parts)) {}

  std::string_view name() const override { return "split"; }
  std::vector<graph::ValueSpec> outputs() const override;
  graph::Work forward_work(const graph::Dims& dims) const override;
  graph::Work backward_work(const graph::Dims& dims) const override { return forward_work(dims); }
  graph::Reads backward_reads() const override { return {}; }
  bool cheap_to_recompute() const override { return true; }

 private:
  int64_t groups_;
  std::vector<SplitPart> parts_;
};

}  // namespace lazytrain::ops
