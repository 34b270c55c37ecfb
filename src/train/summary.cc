#include "train/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/units.h"
#include "train/wording.h"

namespace lazytrain::train {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void print_summary(const RunSummary& s) {
  const double steps_s = std::accumulate(s.step_seconds.begin(), s.step_seconds.end(), 0.0);
  std::vector<std::pair<std::string, runtime::OpTime>> rows(s.profile.begin(), s.profile.end());
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  say("\nwhere the time went ({} in {})\n", format_seconds(steps_s), counted(std::ssize(s.step_seconds), "step"));
  double ops_s = 0;
  for (const auto& [name, time] : rows) {
    ops_s += time.seconds;
    if (time.seconds < 0.005 * steps_s) continue;
    say("  {:28} {:>5.1f}%  {:>10}  {:>6.0f} GFLOPS\n", name, 100 * time.seconds / steps_s,
        format_seconds(time.seconds), time.flops / time.seconds / 1e9);
  }
  say("  {:28} {:>5.1f}%  waiting for the optimizer and between steps\n", "not in ops",
      100 * std::max(0.0, 1 - ops_s / std::max(steps_s, 1e-9)));
  const int64_t planned = s.program.tier_bytes[0] + s.program.tier_bytes[1];
  say("step: median {}, predicted {}; exposed {:.1f}%; measured GEMM rate {:.0f} GFLOPS\n",
      format_seconds(median(s.step_seconds)), format_seconds(s.predicted.step_s),
      100 * median(s.exposed_seconds) / std::max(median(s.step_seconds), 1e-9), s.machine.gemm_flops / 1e9);
  say("memory: planned {}, peak of the process {}\n", format_bytes(planned), format_bytes(hw::peak_resident_bytes()));
  if (s.skipped > 0) say("{} skipped: the gradient was not finite\n", counted(s.skipped, "step"));
  say("model: {}\n", s.model.string());
}

}  // namespace lazytrain::train
