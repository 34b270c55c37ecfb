#include "train/summary.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "train/wording.h"

namespace lazytrain::train {
namespace {

// What a step took: medians, lane by lane.
struct Step {
  double step_s = 0;
  plan::LaneSummary lanes;
};

Step measured_step(const RunSummary& s) {
  Step step{.step_s = s.times.median_step_s(), .lanes = {}};
  for (size_t lane = 0; lane < step.lanes.busy_s.size(); ++lane) {
    step.lanes.busy_s[lane] = s.times.median([&](const plan::LaneSummary& l) { return l.busy_s[lane]; });
  }
  step.lanes.exposed_s = s.times.median([](const plan::LaneSummary& l) { return l.exposed_s; });
  return step;
}

Step predicted_step(const RunSummary& s) { return {s.predicted.step_s, plan::summarize(s.program, s.predicted)}; }

int64_t in_memory(const std::array<int64_t, 3>& tier_bytes) { return tier_bytes[0] + tier_bytes[1]; }

double share(double part, double whole) { return 100 * part / std::max(whole, 1e-9); }

// Each lane's share of a step, as it was and as it was predicted.
void say_lanes(const Step& measured, const Step& predicted) {
  say("lanes: {:<18}{:>10}  {:>7}  {:>9}\n", "", "busy", "of step", "predicted");
  for (size_t lane = 0; lane < predicted.lanes.busy_s.size(); ++lane) {
    const double busy = measured.lanes.busy_s[lane];
    if (busy <= 0 && predicted.lanes.busy_s[lane] <= 0) continue;
    say("  {:<23}{:>10}  {:>6.1f}%  {:>8.1f}%\n", plan::kLaneNames[lane], format_seconds(busy),
        share(busy, measured.step_s), share(predicted.lanes.busy_s[lane], predicted.step_s));
  }
  say("  {:<23}{:>10}  {:>6.1f}%  {:>8.1f}%\n", "exposed", format_seconds(measured.lanes.exposed_s),
      share(measured.lanes.exposed_s, measured.step_s), share(predicted.lanes.exposed_s, predicted.step_s));
}

// What a disk lane moves in a step, how fast, and how near to its rate alone the whole step is.
void say_disk(const RunSummary& s, const Step& measured) {
  const hw::Links& links = s.machine.links;
  double allowed_s = 0;
  for (const auto& [lane, rate] :
       {std::pair{plan::Lane::kDiskRead, links.disk_read}, {plan::Lane::kDiskWrite, links.disk_write}}) {
    double bytes = 0;
    for (const plan::Instruction& i : s.program.instructions) {
      if (i.lane == lane) bytes += static_cast<double>(plan::transfer_bytes(s.program, i));
    }
    const double busy_s = measured.lanes.busy_s[static_cast<size_t>(lane)];
    if (bytes <= 0 || busy_s <= 0 || rate <= 0) continue;
    say("  {:<23}{:>10} a step at {}/s, {:.0f}% of its rate of {}/s\n", name_of(lane),
        format_bytes(static_cast<int64_t>(bytes)), format_bytes(static_cast<int64_t>(bytes / busy_s)),
        share(bytes / busy_s, rate), format_bytes(static_cast<int64_t>(rate)));
    allowed_s = std::max(allowed_s, bytes / rate);
  }
  if (allowed_s > 0) {
    say("  the disk alone would allow a step in {}: {:.0f}% of that was reached\n", format_seconds(allowed_s),
        share(allowed_s, measured.step_s));
  }
}

Json figures(const Step& step, const std::array<int64_t, 3>& peak, int64_t memory_bytes) {
  Json lanes = Json::object(), tiers = Json::object();
  for (size_t lane = 0; lane < step.lanes.busy_s.size(); ++lane) {
    lanes[std::string(plan::kLaneNames[lane])] = {{"busy_s", step.lanes.busy_s[lane]}};
  }
  for (size_t tier = 0; tier < peak.size(); ++tier) tiers[std::string(plan::kTierNames[tier])] = peak[tier];
  return {{"step_s", step.step_s},
          {"exposed_s", step.lanes.exposed_s},
          {"lanes", lanes},
          {"peak_bytes", tiers},
          {"memory_bytes", memory_bytes}};
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
  const int64_t planned = in_memory(s.program.tier_bytes);
  const Step measured = measured_step(s);
  say("step: median {}, predicted {} ({:+.1f}%); measured GEMM rate {:.0f} GFLOPS\n", format_seconds(measured.step_s),
      format_seconds(s.predicted.step_s), 100 * (measured.step_s / s.predicted.step_s - 1), s.machine.gemm_flops / 1e9);
  say_lanes(measured, predicted_step(s));
  say_disk(s, measured);
  say("memory: planned {}{}, peak of the process {}\n", format_bytes(planned),
      s.program.tier_bytes[2] > 0 ? fmt::format(" and {} on disk", format_bytes(s.program.tier_bytes[2])) : "",
      format_bytes(hw::peak_resident_bytes()));
  if (s.skipped > 0) say("{} skipped: the gradient was not finite\n", counted(s.skipped, "step"));
  say("model: {}\n", s.model.string());
}

Json to_json(const RunSummary& s) {
  return {{"steps", s.times.steps()},
          {"predicted",
           figures(predicted_step(s), s.program.tier_bytes, in_memory(s.program.tier_bytes) + s.process_bytes)},
          {"measured", figures(measured_step(s), s.peak_bytes, hw::peak_resident_bytes())}};
}

}  // namespace lazytrain::train
