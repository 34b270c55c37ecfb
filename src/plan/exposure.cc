#include "plan/exposure.h"

#include <algorithm>
#include <array>
#include <map>

namespace lazytrain::plan {
namespace {

constexpr double kLeast = 1e-3;  // of the step

hw::Profile twice_as_fast(hw::Profile machine, Lane lane) {
  switch (lane) {
    case Lane::kCompute:
      machine.gemm_flops *= 2;
      machine.attention_flops *= 2;
      machine.memory_bandwidth *= 2;
      break;
    case Lane::kH2D:
      machine.links.joint += machine.links.h2d;
      machine.links.h2d *= 2;
      break;
    case Lane::kD2H:
      machine.links.joint += machine.links.d2h;
      machine.links.d2h *= 2;
      break;
    case Lane::kHost:
      machine.host_bandwidth *= 2;
      break;
    case Lane::kDiskRead:
      machine.links.disk_read *= 2;
      break;
    case Lane::kDiskWrite:
      machine.links.disk_write *= 2;
      break;
  }
  return machine;
}

class Tracer {
 public:
  Tracer(const Program& program, const Timeline& timeline) : program_(program), timeline_(timeline) {}

  std::map<Lane, Exposure> run() {
    double free_at = 0;
    std::array<int, kLanes> last;
    last.fill(-1);
    int ends_step = 0;
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      int& before = last[static_cast<size_t>(instruction.lane)];
      lane_before_.push_back(before);
      before = static_cast<int>(i);
      if (timeline_.spans[i].end_s >= span(ends_step).end_s) ends_step = static_cast<int>(i);
      if (instruction.lane != Lane::kCompute) continue;
      trace(free_at, timeline_.spans[i].start_s, latest_before(static_cast<int>(i)), instruction.unit);
      free_at = std::max(free_at, timeline_.spans[i].end_s);
    }
    trace(free_at, timeline_.step_s, ends_step, at(ends_step).unit);
    return std::move(found_);
  }

 private:
  const Instruction& at(int i) const { return program_.instructions[static_cast<size_t>(i)]; }
  const Span& span(int i) const { return timeline_.spans[static_cast<size_t>(i)]; }

  // What an instruction waited for last: a dependency, or the one before it on its lane.
  int latest_before(int i) const {
    int latest = lane_before_[static_cast<size_t>(i)];
    for (const int e : at(i).after) {
      if (latest < 0 || span(e).end_s > span(latest).end_s) latest = e;
    }
    return latest;
  }

  // Puts the time from `begin` to `end` down to the chain of instructions that fills it, backwards from `i`.
  void trace(double begin, double end, int i, int unit) {
    while (i >= 0 && end > begin) {
      const double from = std::max(begin, std::min(end, span(i).start_s));
      if (at(i).lane != Lane::kCompute && end > from) add(at(i).lane, end - from, unit);
      end = from;
      i = latest_before(i);
    }
  }

  void add(Lane lane, double seconds, int unit) {
    const auto [it, added] = found_.try_emplace(lane, Exposure{lane, 0, unit, unit, 0});
    it->second.seconds += seconds;
    it->second.first_unit = std::min(it->second.first_unit, unit);
    it->second.last_unit = std::max(it->second.last_unit, unit);
  }

  const Program& program_;
  const Timeline& timeline_;
  std::vector<int> lane_before_;  // by instruction, -1 for a lane's first
  std::map<Lane, Exposure> found_;
};

}  // namespace

std::vector<Exposure> exposures(const Program& program, const graph::Graph& graph, const Timeline& timeline,
                                const hw::Profile& machine) {
  std::vector<Exposure> list;
  for (auto& [lane, exposure] : Tracer(program, timeline).run()) {
    if (exposure.seconds < kLeast * timeline.step_s) continue;
    const hw::Profile faster = twice_as_fast(machine, lane);
    exposure.saved_s = timeline.step_s - simulate(program, CostTable(graph, program, faster)).step_s;
    list.push_back(exposure);
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const Exposure& a, const Exposure& b) { return a.seconds > b.seconds; });
  return list;
}

}  // namespace lazytrain::plan
