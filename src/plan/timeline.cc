#include "plan/timeline.h"

#include <algorithm>

namespace lazytrain::plan {
namespace {

// fp32 in, bf16 out.
constexpr double kAccumulateBytes = 6;
// Both halves in, fp32 out.
constexpr double kMergeBytes = 8;

double compute_seconds(const graph::Unit& unit, const graph::Pass& pass, const Instruction& i, const graph::Dims& dims,
                       const hw::Profile& profile) {
  double seconds = profile.launch_s;
  for (int s = i.first_step; s < i.last_step; ++s) {
    const graph::Work work = graph::work_of(unit, pass, dims, s, s + 1);
    seconds += std::max(work.flops / profile.gemm_flops, work.bytes / profile.memory_bandwidth);
  }
  return seconds;
}

}  // namespace

LaneSummary summarize(const Program& program, const Timeline& timeline) {
  LaneSummary summary;
  for (const Span& span : timeline.spans) {
    const Lane lane = program.instructions[static_cast<size_t>(span.instruction)].lane;
    summary.busy_s[static_cast<size_t>(lane)] += span.end_s - span.start_s;
  }
  summary.exposed_s = std::max(0.0, timeline.step_s - summary.busy_s[static_cast<size_t>(Lane::kCompute)]);
  return summary;
}

CostTable::CostTable(const graph::Graph& graph, const Program& program, const hw::Profile& profile) {
  for (const Instruction& i : program.instructions) {
    const graph::Unit& unit = graph.units[static_cast<size_t>(i.unit)];
    const auto elements = static_cast<double>(unit.block_elements);
    switch (i.action) {
      case Action::kCompute:
        seconds_.push_back(
            compute_seconds(unit, program.layouts[static_cast<size_t>(i.layout)], i, program.dims, profile));
        break;
      case Action::kUpdate:
        seconds_.push_back(elements * kUpdateBytes / profile.host_bandwidth);
        break;
      case Action::kAccumulate:
        seconds_.push_back(elements * kAccumulateBytes / profile.host_bandwidth);
        break;
      case Action::kCopyIn:
        seconds_.push_back(elements * kMergeBytes / profile.memory_bandwidth);
        break;
    }
  }
}

Timeline simulate(const Program& program, const CostTable& costs) {
  Timeline timeline;
  timeline.peak_bytes = program.tier_bytes;
  std::array<double, kLanes> free_at = {};
  std::vector<double> ended(program.instructions.size(), 0);
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    double start = free_at[static_cast<size_t>(instruction.lane)];
    for (const int earlier : instruction.after) start = std::max(start, ended[static_cast<size_t>(earlier)]);
    ended[i] = start + costs.seconds(static_cast<int>(i));
    free_at[static_cast<size_t>(instruction.lane)] = ended[i];
    timeline.spans.push_back({static_cast<int>(i), start, ended[i]});
    timeline.step_s = std::max(timeline.step_s, ended[i]);
  }
  return timeline;
}

}  // namespace lazytrain::plan
