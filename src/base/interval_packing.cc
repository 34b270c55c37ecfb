#include "base/interval_packing.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/arith.h"
#include "base/rng.h"

namespace lazytrain {

namespace {

constexpr double kTight = 1.002;       // of the bound: no further order is tried
constexpr double kNear = 1.02;         // ... and no repair
constexpr int kRounds = 16;            // of each order
constexpr int64_t kMaxBlocks = 4096;   // of time
constexpr size_t kItemsABlock = 8;     // about
constexpr size_t kPlacements = 20000;  // beyond one of each order: what the repairs may cost
constexpr size_t kFewItems = 6000;     // with more of them only the first orders are tried

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
      if (sizes_[i] == 0) continue;
      members_.push_back(i);
      begin_ = std::min(begin_, items[i].first);
      end_ = std::max(end_, items[i].last + 1);
    }
    if (members_.empty()) begin_ = end_ = 0;
    const int64_t blocks = std::clamp<int64_t>(static_cast<int64_t>(members_.size() / kItemsABlock), 1, kMaxBlocks);
    width_ = std::max<int64_t>(1, (end_ - begin_ + blocks - 1) / blocks);
    bound_ = peak_live_bytes(items, alignment);
  }

  Packing run() {
    if (members_.empty()) return {std::vector<int64_t>(items_.size(), 0), 0};
    std::vector<std::vector<size_t>> orders;
    for (const Order before : {largest_area_first, largest_first, longest_first, earliest_first, latest_first}) {
      std::vector<size_t> order = members_;
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return before(items_[a], items_[b]); });
      for (const bool best_fit : {false, true}) {
        keep(place_in(order, best_fit), order);
        if (is_within(kTight, best_)) return best_;
        if (members_.size() > kFewItems) break;
      }
      orders.push_back(std::move(order));
    }
    if (members_.size() <= kFewItems) {
      for (const Order before : {largest_area_first, largest_first, longest_first}) {
        orders.push_back(skyline_order(before));
        keep(place_in(orders.back(), false), orders.back());
        if (is_within(kTight, best_)) return best_;
      }
    }
    size_t left = kPlacements;
    push_forward(orders, left);
    shake(left);
    return best_;
  }

 private:
  struct Placed {
    int64_t offset, end;
  };

  bool is_within(double factor, const Packing& packing) const {
    return static_cast<double>(packing.bytes) <= factor * static_cast<double>(bound_);
  }
  size_t block_of(int64_t step) const { return static_cast<size_t>((step - begin_) / width_); }

  // What is alive with `item` and has a place. An item stands in all blocks that it meets; two are compared in the
  // first of those that they share.
  void neighbours_of(const LiveItem& item) {
    near_.clear();
    const size_t first = block_of(item.first), last = block_of(item.last);
    for (size_t b = first; b <= last; ++b) {
      for (const size_t other : blocks_[b]) {
        const LiveItem& neighbour = items_[other];
        if (neighbour.last < item.first || item.last < neighbour.first) continue;
        if (b != std::max(first, block_of(neighbour.first))) continue;
        near_.push_back({offsets_[other], offsets_[other] + sizes_[other]});
      }
    }
    std::sort(near_.begin(), near_.end(), [](const Placed& a, const Placed& b) { return a.offset < b.offset; });
  }

  // The lowest gap that is wide enough, or the narrowest of them.
  int64_t gap_for(int64_t bytes, bool best_fit) const {
    int64_t free_from = 0, found = -1, narrowest = 0;
    for (const Placed& placed : near_) {
      const int64_t gap = placed.offset - free_from;
      if (gap >= bytes && (found < 0 || gap < narrowest)) {
        found = free_from;
        narrowest = gap;
        if (!best_fit || gap == bytes) return found;
      }
      free_from = std::max(free_from, placed.end);
    }
    return found < 0 ? free_from : found;
  }

  // One item after the other, each where it is free for all its life.
  Packing place_in(const std::vector<size_t>& order, bool best_fit) {
    blocks_.assign(block_of(end_ - 1) + 1, {});
    offsets_.assign(items_.size(), 0);
    int64_t bytes = 0;
    for (const size_t index : order) {
      const LiveItem& item = items_[index];
      neighbours_of(item);
      offsets_[index] = gap_for(sizes_[index], best_fit);
      bytes = std::max(bytes, offsets_[index] + sizes_[index]);
      for (size_t b = block_of(item.first); b <= block_of(item.last); ++b) blocks_[b].push_back(index);
    }
    return {offsets_, bytes};
  }

  // The order in which a skyline over time is filled from below: of what fits into the lowest stretch the first by
  // `before`; where nothing fits, the stretch rises to the lower of its neighbours.
  std::vector<size_t> skyline_order(Order before) const {
    struct Stretch {
      int64_t begin, end, height;
    };
    std::vector<size_t> waiting = members_, order;
    std::stable_sort(waiting.begin(), waiting.end(), [&](size_t a, size_t b) { return before(items_[a], items_[b]); });
    std::vector<Stretch> line = {{begin_, end_, 0}};
    while (!waiting.empty()) {
      const auto lowest = std::min_element(line.begin(), line.end(),
                                           [](const Stretch& a, const Stretch& b) { return a.height < b.height; });
      const auto fits = [&](size_t i) { return lowest->begin <= items_[i].first && items_[i].last < lowest->end; };
      const auto found = std::find_if(waiting.begin(), waiting.end(), fits);
      if (found == waiting.end()) {
        int64_t height = INT64_MAX;
        if (lowest != line.begin()) height = std::prev(lowest)->height;
        if (std::next(lowest) != line.end()) height = std::min(height, std::next(lowest)->height);
        lowest->height = height;
      } else {
        const LiveItem& item = items_[*found];
        const Stretch old = *lowest;
        *lowest = {item.first, item.last + 1, old.height + sizes_[*found]};
        auto at = lowest;
        if (old.begin < item.first) at = std::next(line.insert(at, {old.begin, item.first, old.height}));
        if (item.last + 1 < old.end) line.insert(std::next(at), {item.last + 1, old.end, old.height});
        order.push_back(*found);
        waiting.erase(found);
      }
      for (size_t i = 1; i < line.size();) {
        if (line[i - 1].height != line[i].height) {
          ++i;
          continue;
        }
        line[i - 1].end = line[i].end;
        line.erase(line.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    return order;
  }

  bool is_above(size_t i, const Packing& packing) const { return packing.offsets[i] + sizes_[i] > bound_; }

  // Items that lie above the bound get their turn earlier, from each of the orders on.
  void push_forward(const std::vector<std::vector<size_t>>& orders, size_t& left) {
    for (std::vector<size_t> order : orders) {
      Packing packing = place_in(order, false);
      for (int round = 0; round < kRounds && left >= order.size() && !is_within(kNear, best_); ++round) {
        std::stable_partition(order.begin(), order.end(), [&](size_t i) { return is_above(i, packing); });
        packing = place_in(order, false);
        left -= order.size();
        keep(packing, order);
      }
    }
  }

  // One of those that lie above the bound somewhere earlier in the best order, and two others exchanged.
  void shake(size_t& left) {
    const CounterRng rng(members_.size(), 0);
    uint64_t draw = 0;
    for (; left >= members_.size() && !is_within(kNear, best_); left -= members_.size()) {
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

  // Of packings that are as good the later one: a search must not stand still.
  void keep(Packing packing, const std::vector<size_t>& order) {
    if (!best_order_.empty() && packing.bytes > best_.bytes) return;
    best_ = std::move(packing);
    best_order_ = order;
  }

  const std::vector<LiveItem>& items_;
  std::vector<int64_t> sizes_;
  std::vector<size_t> members_;  // that take any bytes
  int64_t begin_ = INT64_MAX, end_ = INT64_MIN, width_ = 1, bound_ = 0;
  std::vector<std::vector<size_t>> blocks_;
  std::vector<int64_t> offsets_;
  std::vector<Placed> near_;
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
