// Tokens by the row of a table they belong to.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lazytrain::ops {

// Group g are the tokens order[starts[g]] ... order[starts[g + 1] - 1], ascending, of row rows[g]; rows ascend.
struct RowGroups {
  std::vector<int32_t> order;   // [T]
  std::vector<int32_t> starts;  // [groups + 1]
  std::vector<int32_t> rows;    // [groups]
};
RowGroups group_rows(std::span<const int32_t> ids);

}  // namespace lazytrain::ops
