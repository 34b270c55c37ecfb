#include "base/interval_packing.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/arith.h"

namespace lazytrain {

namespace {

using Order = bool (*)(const LiveItem&, const LiveItem&);

int64_t length(const LiveItem& item) { return item.last - item.first + 1; }
bool largest_first(const LiveItem& a, const LiveItem& b) { return a.bytes > b.bytes; }
bool largest_area_first(const LiveItem& a, const LiveItem& b) {
  return static_cast<double>(a.bytes) * static_cast<double>(length(a)) >
         static_cast<double>(b.bytes) * static_cast<double>(length(b));
}
bool longest_first(const LiveItem& a, const LiveItem& b) { return length(a) > length(b); }
bool earliest_first(const LiveItem& a, const LiveItem& b) { return a.first < b.first; }

std::vector<size_t> sorted(const std::vector<LiveItem>& items, Order before) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return before(items[a], items[b]); });
  return order;
}

// One item after the other, each at the lowest offset that is free for all its life.
Packing place_in(const std::vector<size_t>& order, const std::vector<LiveItem>& items, int64_t alignment) {
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

}  // namespace

Packing pack_intervals(const std::vector<LiveItem>& items, int64_t alignment) {
  const int64_t bound = peak_live_bytes(items, alignment);
  Packing best;
  for (const Order order : {largest_first, largest_area_first, longest_first, earliest_first}) {
    Packing packing = place_in(sorted(items, order), items, alignment);
    if (best.offsets.empty() || packing.bytes < best.bytes) best = std::move(packing);
    if (best.bytes == bound) break;
  }
  return best;
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
