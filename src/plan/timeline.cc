#include "plan/timeline.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace lazytrain::plan {
namespace {

// Both halves in, fp32 out.
constexpr double kMergeBytes = 8;

double link_seconds(double bytes, double rate, std::string_view link) {
  if (bytes <= 0) return 0;
  if (rate <= 0) throw std::logic_error("a program moves bytes over " + std::string(link) + ", which has no rate");
  return bytes / rate;
}

// Lanes in order, each with the instruction it runs and how much of it is left.
class Simulation {
 public:
  Simulation(const Program& program, const CostTable& costs) : program_(program), costs_(costs) {
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      queue_[static_cast<size_t>(program.instructions[i].lane)].push_back(static_cast<int>(i));
    }
    spans_.resize(program.instructions.size());
    ended_.assign(program.instructions.size(), false);
  }

  std::vector<Span> run() {
    size_t left = program_.instructions.size();
    while (left > 0) {
      while (start_what_can()) {
      }
      left -= advance();
    }
    return std::move(spans_);
  }

 private:
  struct Running {
    int instruction = -1;
    double left_s = 0;  // alone on the machine
  };

  bool start_what_can() {
    bool started = false;
    for (size_t lane = 0; lane < running_.size(); ++lane) {
      if (running_[lane].instruction >= 0 || next_[lane] == queue_[lane].size()) continue;
      const int index = queue_[lane][next_[lane]];
      const auto& after = program_.instructions[static_cast<size_t>(index)].after;
      if (!std::all_of(after.begin(), after.end(), [&](int e) { return ended_[static_cast<size_t>(e)]; })) continue;
      ++next_[lane];
      running_[lane] = {index, costs_.seconds(index)};
      spans_[static_cast<size_t>(index)] = {index, now_, now_};
      started = true;
    }
    return started;
  }

  double rate(size_t lane) const {
    const auto shares = [&](Lane l) {
      const int index = running_[static_cast<size_t>(l)].instruction;
      return index >= 0 && costs_.shares_link(index);
    };
    const bool both = shares(Lane::kH2D) && shares(Lane::kD2H);
    const bool link = lane == static_cast<size_t>(Lane::kH2D) || lane == static_cast<size_t>(Lane::kD2H);
    return both && link ? costs_.joint_share() : 1;
  }

  // To the next end of an instruction; returns how many ended.
  size_t advance() {
    double step = std::numeric_limits<double>::infinity();
    std::array<double, kLanes> rates = {};
    for (size_t lane = 0; lane < running_.size(); ++lane) {
      if (running_[lane].instruction < 0) continue;
      rates[lane] = rate(lane);
      step = std::min(step, running_[lane].left_s / rates[lane]);
    }
    if (step == std::numeric_limits<double>::infinity())
      throw std::logic_error("the program's lanes wait for each other");
    now_ += step;
    size_t ended = 0;
    for (size_t lane = 0; lane < running_.size(); ++lane) {
      Running& running = running_[lane];
      if (running.instruction < 0) continue;
      running.left_s -= step * rates[lane];
      // What is within rounding of its end is at its end: otherwise a lane may be left with 1e-20 s.
      if (running.left_s > 1e-12 * now_) continue;
      spans_[static_cast<size_t>(running.instruction)].end_s = now_;
      ended_[static_cast<size_t>(running.instruction)] = true;
      running.instruction = -1;
      ++ended;
    }
    return ended;
  }

  const Program& program_;
  const CostTable& costs_;
  std::array<std::vector<int>, kLanes> queue_;
  std::array<size_t, kLanes> next_ = {};
  std::array<Running, kLanes> running_;
  std::vector<Span> spans_;
  std::vector<bool> ended_;
  double now_ = 0;
};

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
  const hw::Links& links = profile.links;
  if (links.joint > 0 && links.h2d + links.d2h > 0) {
    joint_share_ = std::min(1.0, links.joint / (links.h2d + links.d2h));
  }
  for (const Instruction& i : program.instructions) {
    const graph::Unit& unit = graph.units[static_cast<size_t>(i.unit)];
    const auto elements = static_cast<double>(unit.block_elements);
    const double memory = i.lane == Lane::kCompute ? profile.memory_bandwidth : profile.host_bandwidth;
    const auto bytes = static_cast<double>(transfer_bytes(program, i));
    Cost cost;
    switch (i.action) {
      case Action::kCompute:
        cost.seconds = profile.launch_s + pass_seconds(unit, program.layouts[static_cast<size_t>(i.layout)],
                                                       i.first_step, i.last_step, program.dims, profile);
        break;
      case Action::kUpdate: {
        const auto u = static_cast<size_t>(i.unit);
        const StatePiece& piece = program.state[u][static_cast<size_t>(i.piece)];
        const int64_t moments = moments_of_piece(unit, program.moments[u], piece.first, piece.elements).bytes;
        cost.seconds = update_seconds(piece.elements, moments, memory);
        break;
      }
      case Action::kAccumulate:
        cost.seconds = elements * (i.uses.size() == 1 ? kNormBytes : kAccumulateBytes) / memory;
        break;
      case Action::kCopyIn:
        if (program.one_memory || i.lane == Lane::kHost) {
          cost.seconds = elements * kMergeBytes / (program.one_memory ? profile.memory_bandwidth : memory);
        } else {
          cost = {link_seconds(bytes, links.h2d, "h2d"), true};
        }
        break;
      case Action::kFetch:
        cost = {link_seconds(bytes, links.h2d, "h2d"), true};
        break;
      case Action::kCopyOut:
        cost = {link_seconds(bytes, links.d2h, "d2h"), true};
        break;
      case Action::kDiskRead:
        cost.seconds = link_seconds(bytes, links.disk_read, "disk_read");
        break;
      case Action::kDiskWrite:
        cost.seconds = link_seconds(bytes, links.disk_write, "disk_write");
        break;
    }
    costs_.push_back(cost);
  }
}

CostTable CostTable::measured(const graph::Graph& graph, const Program& program, const CostTable& analytic,
                              const Measurements& measurements) {
  CostTable table = analytic;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const Measured m = instruction.action == Action::kCompute
                           ? measurements.compute(graph, instruction.unit, instruction.pass)
                           : measurements.other(instruction.action, instruction.lane);
    table.costs_[i].seconds *= m.factor();
  }
  table.joint_share_ = std::min(1.0, analytic.joint_share_ * measurements.link_factor() / measurements.joint_factor());
  return table;
}

Timeline simulate(const Program& program, const CostTable& costs) {
  Timeline timeline;
  timeline.peak_bytes = program.tier_bytes;
  timeline.spans = Simulation(program, costs).run();
  for (const Span& span : timeline.spans) timeline.step_s = std::max(timeline.step_s, span.end_s);
  return timeline;
}

}  // namespace lazytrain::plan
