// Places items that live over an interval of steps into one address range: the heart of every arena here.
#pragma once

#include <cstdint>
#include <vector>

namespace lazytrain {

// Alive from step `first` to step `last`, both included.
struct LiveItem {
  int64_t bytes = 0;
  int64_t first = 0;
  int64_t last = 0;
};

struct Packing {
  std::vector<int64_t> offsets;  // one an item, multiples of `alignment`
  int64_t bytes = 0;             // the range that holds them all
};

// Two items whose intervals meet never overlap in address. Items are placed one after the other, each in the lowest or
// the narrowest gap that is wide enough, in several orders; in the best of these, what lies above peak_live_bytes then
// gets its turn earlier, again and again. Deterministic; ends as soon as it is within 0.2 % of peak_live_bytes, and is
// within 5 % of it for anything like a program. O(n^2) a try, and tries for some tens of milliseconds.
Packing pack_intervals(const std::vector<LiveItem>& items, int64_t alignment);

// The largest sum of bytes alive at one step: no packing can need less.
int64_t peak_live_bytes(const std::vector<LiveItem>& items, int64_t alignment);

}  // namespace lazytrain
