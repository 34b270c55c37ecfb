#include "base/interval_packing.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/arith.h"
#include "base/rng.h"

namespace lazytrain {

namespace {

constexpr double kTight = 1.002;           // of the bound: no further order is tried
constexpr double kNear = 1.02;             // ... and no repair
constexpr int kRounds = 16;                // of each order
constexpr int64_t kPatience = 20'000'000;  // neighbours looked at, some 40 ms: nothing more is begun then

using Order = bool (*)(const LiveItem&, const LiveItem&);

int64_t length(const LiveItem& item) { return item.last - item.first + 1; }
bool largest_first(const LiveItem& a, const LiveItem& b) { return a.bytes > b.bytes; }
bool largest_area_first(const LiveItem& a, const LiveItem& b) {
  return static_cast<double>(a.bytes) * static_cast<double>(length(a)) >
         static_cast<double>(b.bytes) * static_cast<double>(length(b));
}
bool longest_first(const LiveItem& a, const LiveItem& b) { return length(a) > length(b); }
bool earliest_first(const LiveItem& a, const LiveItem& b) { return a.first < b.first; }
bool latest_first(const LiveItem& a, const LiveItem& b) { return a.last > b.last; }

class Packer {
 public:
  Packer(const std::vector<LiveItem>& items, int64_t alignment) : items_(items) {
    for (size_t i = 0; i < items.size(); ++i) {
      sizes_.push_back(align_up(items[i].bytes, alignment));
      if (sizes_[i] > 0) members_.push_back(i);
    }
    bound_ = peak_live_bytes(items, alignment);
  }

  Packing run() {
    if (members_.empty()) return {std::vector<int64_t>(items_.size(), 0), 0};
    std::vector<std::vector<size_t>> orders;
    for (const Order before : {largest_area_first, largest_first, longest_first, earliest_first, latest_first}) {
      orders.push_back(sorted(before));
      for (const bool best_fit : {false, true}) {
        if (is_done(kTight)) return best_;
        keep(place_in(orders.back(), best_fit), orders.back());
      }
    }
    for (const Order before : {largest_area_first, largest_first, longest_first}) {
      if (is_done(kTight)) return best_;
      orders.push_back(skyline_order(before));
      keep(place_in(orders.back(), false), orders.back());
    }
    push_forward(orders);
    shake();
    return best_;
  }

 private:
  // Near enough to the bound, or out of patience; never before there is a packing.
  bool is_done(double factor) const {
    if (best_order_.empty()) return false;
    return looked_at_ > kPatience || static_cast<double>(best_.bytes) <= factor * static_cast<double>(bound_);
  }

  // Of packings that are as good the later one: a search must not stand still.
  void keep(Packing packing, const std::vector<size_t>& order) {
    if (!best_order_.empty() && packing.bytes > best_.bytes) return;
    best_ = std::move(packing);
    best_order_ = order;
  }

  std::vector<size_t> sorted(Order before) const {
    std::vector<size_t> order = members_;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return before(items_[a], items_[b]); });
    return order;
  }

  // The lowest gap that is free for all the item's life, or the narrowest of them.
  int64_t gap_for(size_t index, const std::vector<int64_t>& offsets, bool best_fit) {
    const LiveItem& item = items_[index];
    const int64_t bytes = sizes_[index];
    int64_t free_from = 0, found = -1, narrowest = 0;
    for (const size_t other : placed_) {
      ++looked_at_;
      const LiveItem& neighbour = items_[other];
      if (neighbour.last < item.first || item.last < neighbour.first) continue;
      const int64_t gap = offsets[other] - free_from;
      if (gap >= bytes && (found < 0 || gap < narrowest)) {
        found = free_from;
        narrowest = gap;
        if (!best_fit || gap == bytes) return found;
      }
      free_from = std::max(free_from, offsets[other] + sizes_[other]);
    }
    return found < 0 ? free_from : found;
  }

  // One item after the other.
  Packing place_in(const std::vector<size_t>& order, bool best_fit) {
    Packing packing{std::vector<int64_t>(items_.size(), 0), 0};
    std::vector<int64_t>& offsets = packing.offsets;
    placed_.clear();
    for (const size_t index : order) {
      const int64_t offset = gap_for(index, offsets, best_fit);
      offsets[index] = offset;
      packing.bytes = std::max(packing.bytes, offset + sizes_[index]);
      placed_.insert(std::upper_bound(placed_.begin(), placed_.end(), offset,
                                      [&](int64_t value, size_t other) { return value < offsets[other]; }),
                     index);
    }
    return packing;
  }

  struct Stretch {
    int64_t begin, end, height;
  };

  // The order in which a skyline over time is filled from below: of what fits into the lowest stretch the first by
  // `before`; where nothing fits, the stretch rises to the lower of its neighbours.
  std::vector<size_t> skyline_order(Order before) {
    std::vector<size_t> waiting = sorted(before), order;
    int64_t begin = INT64_MAX, end = INT64_MIN;
    for (const size_t i : members_) {
      begin = std::min(begin, items_[i].first);
      end = std::max(end, items_[i].last + 1);
    }
    std::vector<Stretch> line = {{begin, end, 0}};
    while (!waiting.empty()) {
      const auto lowest = std::min_element(line.begin(), line.end(),
                                           [](const Stretch& a, const Stretch& b) { return a.height < b.height; });
      const auto fits = [&](size_t i) { return lowest->begin <= items_[i].first && items_[i].last < lowest->end; };
      const auto found = std::find_if(waiting.begin(), waiting.end(), fits);
      looked_at_ += static_cast<int64_t>(line.size()) + (found - waiting.begin());
      if (found == waiting.end()) {
        int64_t height = INT64_MAX;
        if (lowest != line.begin()) height = std::prev(lowest)->height;
        if (std::next(lowest) != line.end()) height = std::min(height, std::next(lowest)->height);
        lowest->height = height;
      } else {
        split(line, lowest, *found);
        order.push_back(*found);
        waiting.erase(found);
      }
      join(line);
    }
    return order;
  }

  void split(std::vector<Stretch>& line, std::vector<Stretch>::iterator at, size_t index) const {
    const LiveItem& item = items_[index];
    const Stretch old = *at;
    *at = {item.first, item.last + 1, old.height + sizes_[index]};
    if (old.begin < item.first) at = std::next(line.insert(at, {old.begin, item.first, old.height}));
    if (item.last + 1 < old.end) line.insert(std::next(at), {item.last + 1, old.end, old.height});
  }

  static void join(std::vector<Stretch>& line) {
    size_t kept = 0;
    for (size_t i = 1; i < line.size(); ++i) {
      if (line[kept].height == line[i].height) {
        line[kept].end = line[i].end;
      } else {
        line[++kept] = line[i];
      }
    }
    line.resize(kept + 1);
  }

  bool is_above(size_t i, const Packing& packing) const { return packing.offsets[i] + sizes_[i] > bound_; }

  // Items that lie above the bound get their turn earlier, from each of the orders on.
  void push_forward(const std::vector<std::vector<size_t>>& orders) {
    for (std::vector<size_t> order : orders) {
      if (is_done(kNear)) return;
      Packing packing = place_in(order, false);
      for (int round = 0; round < kRounds && !is_done(kNear); ++round) {
        std::stable_partition(order.begin(), order.end(), [&](size_t i) { return is_above(i, packing); });
        packing = place_in(order, false);
        keep(packing, order);
      }
    }
  }

  // One of those that lie above the bound somewhere earlier in the best order, and two others exchanged.
  void shake() {
    const CounterRng rng(members_.size(), 0);
    for (uint64_t draw = 0; !is_done(kNear);) {
      std::vector<size_t> order = best_order_, culprits;
      for (size_t at = 0; at < order.size(); ++at) {
        if (is_above(order[at], best_)) culprits.push_back(at);
      }
      const auto from = static_cast<std::ptrdiff_t>(culprits[rng.below(draw++, culprits.size())]);
      const auto to = static_cast<std::ptrdiff_t>(rng.below(draw++, static_cast<uint64_t>(from) + 1));
      std::rotate(order.begin() + to, order.begin() + from, order.begin() + from + 1);
      const uint64_t one = rng.below(draw++, order.size()), other = rng.below(draw++, order.size());
      std::swap(order[one], order[other]);
      keep(place_in(order, false), order);
    }
  }

  const std::vector<LiveItem>& items_;
  std::vector<int64_t> sizes_;
  std::vector<size_t> members_;  // that take any bytes
  std::vector<size_t> placed_;   // by offset
  int64_t bound_ = 0, looked_at_ = 0;
  Packing best_;
  std::vector<size_t> best_order_;
};

}  // namespace

Packing pack_intervals(const std::vector<LiveItem>& items, int64_t alignment) { return Packer(items, alignment).run(); }

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
