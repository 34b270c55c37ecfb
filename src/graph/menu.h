// The retained sets worth choosing from: what a unit may keep from forward for its backward.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/pass.h"

namespace lazytrain::graph {

struct MenuItem {
  std::vector<std::string> retained;  // names of values, for a Policy
  int64_t bytes = 0;                  // of the retained set, one micro-batch
  double recompute_s = 0;             // of the recompute slice, one micro-batch
  int64_t workspace_bytes = 0;        // of the backward pass with it
};

// Seconds of one forward call of an op, one micro-batch.
using OpSeconds = std::function<double(const OpKind&)>;

// Enumerates subsets of the op outputs that are costly to recompute (the outputs of one op go together; beyond
// `kMaxMenuOps` ops only the costliest, a second of recompute against a byte kept), drops what another subset beats in
// bytes and time, and keeps at most `limit` (2 at least): the first, which keeps nothing, the last, which recomputes
// least, and of the others those whose absence would raise the lower hull of bytes against time most. Ascending in
// bytes. A unit that needs nothing in backward has one item.
inline constexpr int kMaxMenuOps = 12;
std::vector<MenuItem> retained_menu(const Unit& unit, const Dims& dims, const OpSeconds& seconds, int limit);

}  // namespace lazytrain::graph
