#include "plan/windows.h"

#include <algorithm>

namespace lazytrain::plan {

std::vector<Window> windows_of(const Policy& policy, int units) {
  const int head = units - 1;
  std::vector<Window> windows;
  for (int u = 0; u < head; ++u) windows.push_back({Pass::kForward, u});
  windows.push_back({Pass::kLoss, head});
  for (int end = head - 1; end > 0;) {  // blocks between checkpoints, last to first
    int start = end - 1;
    while (!policy.boundaries[static_cast<size_t>(start)].checkpoint) --start;
    const int last = policy.recompute_whole_block && end - start > 1 ? end : end - 1;
    for (int u = start + 1; u <= last; ++u) windows.push_back({Pass::kBlockRecompute, u});
    for (int u = end; u > start; --u) windows.push_back({Pass::kBackward, u});
    end = start;
  }
  windows.push_back({Pass::kBackward, 0});
  return windows;
}

int window_of(const std::vector<Window>& windows, Pass pass, int unit) {
  const auto it =
      std::find_if(windows.begin(), windows.end(), [&](const Window& w) { return w.pass == pass && w.unit == unit; });
  return it == windows.end() ? -1 : static_cast<int>(it - windows.begin());
}

int return_window(const std::vector<Window>& windows, int boundary) {
  const auto it = std::find_if(windows.begin(), windows.end(), [&](const Window& w) {
    return w.unit == boundary + 1 && (w.pass == Pass::kBlockRecompute || w.pass == Pass::kBackward);
  });
  return it == windows.end() ? -1 : static_cast<int>(it - windows.begin());
}

}  // namespace lazytrain::plan
