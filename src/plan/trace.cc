#include "plan/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/file.h"

namespace lazytrain::plan {
namespace {

constexpr int kProcess = 1;
constexpr double kMicroseconds = 1e6;

Json metadata(std::string_view what, int thread, std::string_view name) {
  return {{"name", what}, {"ph", "M"}, {"pid", kProcess}, {"tid", thread}, {"args", {{"name", name}}}};
}

Json slice(const Program& program, const graph::Graph& graph, const Span& span) {
  const Instruction& i = program.instructions[static_cast<size_t>(span.instruction)];
  Json args = {{"unit", graph.units[static_cast<size_t>(i.unit)].name}, {"action", name_of(i.action)}};
  if (i.action == Action::kCompute) {
    args["pass"] = name_of(i.pass);
    args["micro_batch"] = i.micro;
  }
  return {{"name", label(program, graph, span.instruction)},
          {"cat", i.action == Action::kCompute ? name_of(i.pass) : name_of(i.action)},
          {"ph", "X"},
          {"pid", kProcess},
          {"tid", static_cast<int>(i.lane)},
          {"ts", span.start_s * kMicroseconds},
          {"dur", (span.end_s - span.start_s) * kMicroseconds},
          {"args", std::move(args)}};
}

}  // namespace

std::vector<MemoryPoint> bytes_over_time(const Program& program, const Timeline& timeline, Tier tier) {
  struct Life {
    double start_s = -1;
    double end_s = -1;
  };
  std::vector<Life> lives(program.buffers.size());
  for (const Span& span : timeline.spans) {
    for (const Use& use : program.instructions[static_cast<size_t>(span.instruction)].uses) {
      Life& life = lives[static_cast<size_t>(use.buffer)];
      life.start_s = life.start_s < 0 ? span.start_s : std::min(life.start_s, span.start_s);
      life.end_s = std::max(life.end_s, span.end_s);
    }
  }
  std::map<double, int64_t> changes = {{0.0, 0}};
  for (size_t b = 0; b < lives.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.tier != tier) continue;
    if (buffer.state) {
      changes[0.0] += buffer.bytes;
    } else if (lives[b].start_s >= 0) {
      changes[lives[b].start_s] += buffer.bytes;
      changes[lives[b].end_s] -= buffer.bytes;
    }
  }
  std::vector<MemoryPoint> points;
  int64_t bytes = 0;
  for (const auto& [time_s, change] : changes) {
    bytes += change;
    points.push_back({time_s, bytes});
  }
  return points;
}

Json trace_json(const Program& program, const graph::Graph& graph, const Timeline& timeline) {
  Json events = Json::array();
  events.push_back(metadata("process_name", 0, "lazytrain"));
  std::set<Lane> lanes;
  for (const Span& span : timeline.spans) {
    lanes.insert(program.instructions[static_cast<size_t>(span.instruction)].lane);
  }
  for (const Lane lane : lanes) events.push_back(metadata("thread_name", static_cast<int>(lane), name_of(lane)));
  for (const Span& span : timeline.spans) events.push_back(slice(program, graph, span));
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    if (program.tier_bytes[static_cast<size_t>(tier)] == 0) continue;
    for (const MemoryPoint& point : bytes_over_time(program, timeline, tier)) {
      events.push_back({{"name", fmt::format("{} bytes", name_of(tier))},
                        {"ph", "C"},
                        {"pid", kProcess},
                        {"ts", point.start_s * kMicroseconds},
                        {"args", {{"bytes", point.bytes}}}});
    }
  }
  return {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
}

void write_trace(const Program& program, const graph::Graph& graph, const Timeline& timeline,
                 const std::filesystem::path& path) {
  write_file(path, trace_json(program, graph, timeline).dump() + "\n");
}

}  // namespace lazytrain::plan
