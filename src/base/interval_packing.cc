#include "base/interval_packing.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/arith.h"

namespace lazytrain {

Packing pack_intervals(const std::vector<LiveItem>& items, int64_t alignment) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return items[a].bytes > items[b].bytes; });

  Packing packing{std::vector<int64_t>(items.size(), 0), 0};
  std::vector<size_t> placed;  // by offset
  for (const size_t index : order) {
    const LiveItem& item = items[index];
    const int64_t bytes = align_up(item.bytes, alignment);
    if (bytes == 0) continue;
    int64_t offset = 0;
    for (const size_t other : placed) {
      const LiveItem& neighbour = items[other];
      if (neighbour.last < item.first || item.last < neighbour.first) continue;
      if (packing.offsets[other] >= offset + bytes) break;  // the gap before it is wide enough
      offset = std::max(offset, packing.offsets[other] + align_up(neighbour.bytes, alignment));
    }
    packing.offsets[index] = offset;
    packing.bytes = std::max(packing.bytes, offset + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [&](int64_t value, size_t other) { return value < packing.offsets[other]; }),
                  index);
  }
  return packing;
}

int64_t peak_live_bytes(const std::vector<LiveItem>& items, int64_t alignment) {
  std::map<int64_t, int64_t> change;
  for (const LiveItem& item : items) {
    change[item.first] += align_up(item.bytes, alignment);
    change[item.last + 1] -= align_up(item.bytes, alignment);
  }
  int64_t live = 0, peak = 0;
  for (const auto& [step, bytes] : change) {
    live += bytes;
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace lazytrain
