#include "plan/placement.h"

#include <algorithm>
#include <map>

#include "base/arith.h"
#include "base/interval_packing.h"

namespace lazytrain::plan {
namespace {

struct History {
  int writer = -1;
  std::array<int, kLanes> readers;  // the last on each lane since that write
  History() { readers.fill(-1); }
};

// Which buffer used each byte of a tier last: ranges that do not overlap, by their begin.
class Occupants {
 public:
  // Calls `previous` for each buffer that had bytes of [begin, end), which now are `buffer`'s.
  template <typename Previous>
  void take(int64_t begin, int64_t end, int buffer, const Previous& previous) {
    auto it = ranges_.upper_bound(begin);
    if (it != ranges_.begin() && std::prev(it)->second.end > begin) --it;
    while (it != ranges_.end() && it->first < end) {
      const int64_t from = it->first;
      const Range old = it->second;
      previous(old.buffer);
      it = ranges_.erase(it);
      if (from < begin) ranges_[from] = {begin, old.buffer};
      if (old.end > end) it = ranges_.insert({end, {old.end, old.buffer}}).first;
    }
    ranges_[begin] = {end, buffer};
  }

 private:
  struct Range {
    int64_t end;
    int buffer;
  };
  std::map<int64_t, Range> ranges_;
};

class Orderer {
 public:
  explicit Orderer(Program& program)
      : program_(program), history_(program.buffers.size()), met_(program.buffers.size(), false) {}

  void run() {
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      after_.fill(-1);
      lane_ = program_.instructions[i].lane;
      for (const Use& use : program_.instructions[i].uses) wait_for_conflicts(use);
      for (const Use& use : program_.instructions[i].uses) remember(use, static_cast<int>(i));
      for (const int earlier : after_) {
        if (earlier >= 0) program_.instructions[i].after.push_back(earlier);
      }
    }
  }

 private:
  void need(int earlier) {
    if (earlier < 0) return;
    const Lane lane = program_.instructions[static_cast<size_t>(earlier)].lane;
    int& latest = after_[static_cast<size_t>(lane)];
    if (lane != lane_) latest = std::max(latest, earlier);
  }
  void need_all(const History& history) {
    need(history.writer);
    for (const int reader : history.readers) need(reader);
  }

  void wait_for_conflicts(const Use& use) {
    const auto b = static_cast<size_t>(use.buffer);
    const Buffer& buffer = program_.buffers[b];
    if (!met_[b] && !buffer.state && buffer.bytes > 0) {
      occupants_[static_cast<size_t>(buffer.tier)].take(
          buffer.offset, buffer.offset + buffer.bytes, use.buffer,
          [&](int other) { need_all(history_[static_cast<size_t>(other)]); });
      met_[b] = true;
    }
    if (use.write) {
      need_all(history_[b]);
    } else {
      need(history_[b].writer);
    }
  }

  void remember(const Use& use, int instruction) {
    History& history = history_[static_cast<size_t>(use.buffer)];
    if (use.write) {
      history = History();
      history.writer = instruction;
    } else {
      history.readers[static_cast<size_t>(lane_)] = instruction;
    }
  }

  Program& program_;
  std::vector<History> history_;
  std::vector<bool> met_;
  std::array<Occupants, 3> occupants_;  // by tier
  std::array<int, kLanes> after_ = {};
  Lane lane_ = Lane::kCompute;
};

}  // namespace

void place_buffers(Program& program, const std::array<int64_t, 3>& state_bytes) {
  std::vector<LiveItem> items(program.buffers.size(), {0, -1, -1});
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    for (const Use& use : program.instructions[i].uses) {
      LiveItem& item = items[static_cast<size_t>(use.buffer)];
      if (item.first < 0) item.first = static_cast<int64_t>(i);
      item.last = static_cast<int64_t>(i);
    }
  }
  const bool disk = std::any_of(program.instructions.begin(), program.instructions.end(), [](const Instruction& i) {
    return i.action == Action::kDiskRead || i.action == Action::kDiskWrite;
  });
  const int64_t alignment = disk ? kDiskAlignment : kArenaAlignment;
  for (size_t tier = 0; tier < kTierNames.size(); ++tier) {
    std::vector<size_t> members;
    std::vector<LiveItem> live;
    for (size_t b = 0; b < items.size(); ++b) {
      const Buffer& buffer = program.buffers[b];
      if (buffer.state || static_cast<size_t>(buffer.tier) != tier || items[b].first < 0) continue;
      members.push_back(b);
      live.push_back({buffer.bytes, items[b].first, items[b].last});
    }
    const Packing packing = pack_intervals(live, alignment);
    for (size_t j = 0; j < members.size(); ++j) {
      program.buffers[members[j]].offset = state_bytes[tier] + packing.offsets[j];
    }
    program.tier_bytes[tier] = state_bytes[tier] + packing.bytes;
  }
}

void add_dependencies(Program& program) { Orderer(program).run(); }

}  // namespace lazytrain::plan
