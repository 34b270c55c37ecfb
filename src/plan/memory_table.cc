#include <algorithm>
#include <map>

#include "plan/program.h"

namespace lazytrain::plan {

std::vector<MemoryRow> memory_table(const Program& program) {
  // First and last use of each buffer, then the instruction at which most bytes are alive.
  const auto count = program.buffers.size();
  std::vector<int64_t> first(count, -1), last(count, -1);
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    for (const Use& use : program.instructions[i].uses) {
      const auto b = static_cast<size_t>(use.buffer);
      if (first[b] < 0) first[b] = static_cast<int64_t>(i);
      last[b] = static_cast<int64_t>(i);
    }
  }
  std::vector<int64_t> change(program.instructions.size() + 1, 0);
  for (size_t b = 0; b < count; ++b) {
    if (program.buffers[b].state || first[b] < 0) continue;
    change[static_cast<size_t>(first[b])] += program.buffers[b].bytes;
    change[static_cast<size_t>(last[b]) + 1] -= program.buffers[b].bytes;
  }
  int64_t live = 0, peak = -1, at = 0;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    live += change[i];
    if (live > peak) {
      peak = live;
      at = static_cast<int64_t>(i);
    }
  }
  std::map<std::pair<Tier, Purpose>, int64_t> rows;
  for (size_t b = 0; b < count; ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.state || (first[b] >= 0 && first[b] <= at && at <= last[b]))
      rows[{buffer.tier, buffer.purpose}] += buffer.bytes;
  }
  std::vector<MemoryRow> table;
  for (const auto& [key, bytes] : rows) {
    if (bytes > 0) table.push_back({key.second, key.first, bytes});
  }
  return table;
}

}  // namespace lazytrain::plan
