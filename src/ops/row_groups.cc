#include "ops/row_groups.h"

#include <algorithm>
#include <numeric>

namespace lazytrain::ops {

RowGroups group_rows(std::span<const int32_t> ids) {
  RowGroups groups;
  groups.order.resize(ids.size());
  std::iota(groups.order.begin(), groups.order.end(), 0);
  std::stable_sort(groups.order.begin(), groups.order.end(),
                   [&](int32_t a, int32_t b) { return ids[static_cast<size_t>(a)] < ids[static_cast<size_t>(b)]; });
  for (size_t i = 0; i < groups.order.size(); ++i) {
    const int32_t id = ids[static_cast<size_t>(groups.order[i])];
    if (!groups.rows.empty() && groups.rows.back() == id) continue;
    groups.rows.push_back(id);
    groups.starts.push_back(static_cast<int32_t>(i));
  }
  groups.starts.push_back(static_cast<int32_t>(ids.size()));
  return groups;
}

}  // namespace lazytrain::ops
