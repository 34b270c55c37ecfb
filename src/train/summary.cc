#include "train/summary.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "train/wording.h"

namespace lazytrain::train {
namespace {

// Each lane's share of a step, as it was and as it was predicted, where there is more than compute.
void say_lanes(const RunSummary& s, double step_s) {
  const plan::LaneSummary predicted = plan::summarize(s.program, s.predicted);
  const auto share = [](double part, double whole) { return 100 * part / std::max(whole, 1e-9); };
  say("lanes: {:<18}{:>10}  {:>7}  {:>9}\n", "", "busy", "of step", "predicted");
  for (size_t lane = 0; lane < predicted.busy_s.size(); ++lane) {
    const double busy = s.times.median([&](const plan::LaneSummary& l) { return l.busy_s[lane]; });
    if (busy <= 0 && predicted.busy_s[lane] <= 0) continue;
    say("  {:<23}{:>10}  {:>6.1f}%  {:>8.1f}%\n", plan::kLaneNames[lane], format_seconds(busy), share(busy, step_s),
        share(predicted.busy_s[lane], s.predicted.step_s));
  }
  const double exposed = s.times.median([](const plan::LaneSummary& l) { return l.exposed_s; });
  say("  {:<23}{:>10}  {:>6.1f}%  {:>8.1f}%\n", "exposed", format_seconds(exposed), share(exposed, step_s),
      share(predicted.exposed_s, s.predicted.step_s));
}

}  // namespace

void print_summary(const RunSummary& s) {
  const double steps_s = s.times.seconds();
  std::vector<std::pair<runtime::OpDirection, runtime::OpTime>> rows(s.profile.begin(), s.profile.end());
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  say("\nwhere the time went ({} in {})\n", format_seconds(steps_s), counted(s.times.steps(), "step"));
  double ops_s = 0;
  for (const auto& [op, time] : rows) {
    ops_s += time.seconds;
    if (time.seconds < 0.005 * steps_s) continue;
    say("  {:28} {:>5.1f}%  {:>10}  {:>6.0f} GFLOPS\n", op.name(), 100 * time.seconds / steps_s,
        format_seconds(time.seconds), time.flops / time.seconds / 1e9);
  }
  say("  {:28} {:>5.1f}%  waiting for the optimizer and between steps\n", "not in ops",
      100 * std::max(0.0, 1 - ops_s / std::max(steps_s, 1e-9)));
  const int64_t planned = s.program.tier_bytes[0] + s.program.tier_bytes[1];
  const double step_s = s.times.median_step_s();
  say("step: median {}, predicted {} ({:+.1f}%); measured GEMM rate {:.0f} GFLOPS\n", format_seconds(step_s),
      format_seconds(s.predicted.step_s), 100 * (step_s / s.predicted.step_s - 1), s.machine.gemm_flops / 1e9);
  say_lanes(s, step_s);
  say("memory: planned {}{}, peak of the process {}\n", format_bytes(planned),
      s.program.tier_bytes[2] > 0 ? fmt::format(" and {} on disk", format_bytes(s.program.tier_bytes[2])) : "",
      format_bytes(hw::peak_resident_bytes()));
  if (s.skipped > 0) say("{} skipped: the gradient was not finite\n", counted(s.skipped, "step"));
  say("model: {}\n", s.model.string());
}

}  // namespace lazytrain::train
