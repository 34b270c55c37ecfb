#include "report/run_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/units.h"
#include "plan/describe.h"
#include "plan/trace.h"

namespace lazytrain::report {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
constexpr double kMicroseconds = 1e6;

std::vector<std::pair<std::string, std::string>> facts_of(const plan::Program& program, const graph::Graph& graph,
                                                          const plan::Timeline& predicted, const hw::Profile& machine) {
  const plan::Figures figures = plan::figures_of(program, graph, predicted);
  const plan::Policy& policy = program.policy;
  return {
      {"model", fmt::format("{}, {} layers, {} parameters", graph.family, graph.layers(),
                            format_count(static_cast<double>(graph.parameter_count())))},
      {"policy", policy.name},
      {"batch", fmt::format("{} sequences of {} tokens, {} at a time", policy.batch, policy.seq, policy.micro_batch)},
      {"compute", program.compute == DType::kF32 ? "fp32" : "bf16"},
      {"predicted step", format_seconds(figures.step_s)},
      {"predicted exposed",
       fmt::format("{} ({:.1f}%)", format_seconds(figures.exposed_s), 100 * figures.exposed_s / figures.step_s)},
      {"predicted rate",
       fmt::format("{:.0f} tokens/s, {:.3g} TFLOPS (6 N tokens/s)", figures.tok_per_s, figures.tflops)},
      {"machine", fmt::format("{}: {:.3g} TFLOPS, {:.3g} GB/s", machine.name, machine.gemm_flops / 1e12,
                              machine.memory_bandwidth / 1e9)}};
}

std::string state_of(plan::Kept kept) {
  switch (kept) {
    case plan::Kept::kRetained:
      return "retained";
    case plan::Kept::kCheckpoint:
      return "run again";
    case plan::Kept::kNothing:
      return "recomputed";
    case plan::Kept::kRows:
      return "rows";
    case plan::Kept::kLoss:
      return "loss";
  }
  return "";
}

std::vector<Tile> tiles_of(const plan::Program& program, const graph::Graph& graph) {
  std::vector<Tile> tiles;
  for (size_t u = 0; u < graph.units.size(); ++u) {
    const plan::UnitPolicy& unit = program.policy.units[u];
    std::string detail =
        fmt::format("weights on {}, optimizer state on {}", name_of(unit.weight_home), name_of(unit.optimizer_home));
    if (program.retained[u].bytes > 0) {
      detail += fmt::format("; retained on {}, {} a micro-batch: {}", name_of(unit.retained_home),
                            format_bytes(program.retained[u].bytes), fmt::join(unit.retained, ", "));
    }
    tiles.push_back({graph.units[u].name, "unit", state_of(plan::kept_of(program, graph, static_cast<int>(u))),
                     std::string(name_of(unit.weight_home)), detail});
    if (u + 1 == graph.units.size()) break;
    const plan::BoundaryPolicy& boundary = program.policy.boundaries[u];
    tiles.push_back(
        {fmt::format("boundary {}", u), "boundary", boundary.checkpoint ? "checkpoint" : "recomputed",
         std::string(name_of(boundary.home)),
         boundary.checkpoint ? "kept until the backward of its block" : "recomputed from the checkpoint before it"});
  }
  return tiles;
}

std::vector<Curve> memory_of(const plan::Program& program, const plan::Timeline& timeline) {
  std::vector<Curve> curves;
  for (const plan::Tier tier : {plan::Tier::kDevice, plan::Tier::kHost, plan::Tier::kDisk}) {
    if (program.tier_bytes[static_cast<size_t>(tier)] == 0) continue;
    Curve curve{std::string(name_of(tier)), {}};
    for (const plan::MemoryPoint& point : plan::bytes_over_time(program, timeline, tier)) {
      curve.points.emplace_back(point.start_s, static_cast<double>(point.bytes));
    }
    curves.push_back(std::move(curve));
  }
  return curves;
}

// Slices and counters of trace.json, as plan::write_trace wrote them.
void read_trace(const fs::path& file, PageData& page) {
  const Json json = read_json(file, kMaxFileBytes);
  const JsonObject trace(json, file.string());
  if (!trace.has("traceEvents") || !json.at("traceEvents").is_array()) {
    throw InputError("{}: expected a list \"traceEvents\"", file.string());
  }
  std::map<int64_t, std::string> lanes;
  std::map<std::string, Curve> memory;
  page.slices.clear();
  page.step_s = 0;
  for (const Json& item : json.at("traceEvents")) {
    const JsonObject event(item, file.string() + ": traceEvents");
    const std::string kind = event.string("ph");
    if (kind == "M" && event.string("name") == "thread_name") {
      lanes[event.integer("tid", 0, 1 << 20)] = event.object("args").string("name");
    } else if (kind == "X") {
      const double start = event.number("ts") / kMicroseconds, length = event.number("dur") / kMicroseconds;
      page.slices.push_back({std::to_string(event.integer("tid", 0, 1 << 20)), event.string("name"),
                             event.string_or("cat", ""), start, start + length});
      page.step_s = std::max(page.step_s, start + length);
    } else if (kind == "C") {
      const std::string name = event.string("name");
      memory[name].name = name.substr(0, name.find(' '));
      memory[name].points.emplace_back(event.number("ts") / kMicroseconds, event.object("args").number("bytes"));
    }
  }
  for (Slice& slice : page.slices) {
    const auto lane = lanes.find(std::stoll(slice.lane));
    if (lane != lanes.end()) slice.lane = lane->second;
  }
  page.memory.clear();
  for (auto& [name, curve] : memory) page.memory.push_back(std::move(curve));
}

void read_metrics(const fs::path& file, PageData& page) {
  const std::string text = read_file(file, kMaxFileBytes);
  std::vector<Curve> curves = {{"loss", {}}, {"eval_loss", {}}, {"grad_norm", {}},
                               {"lr", {}},   {"tok_per_s", {}}, {"exposed_s", {}}};
  int64_t number = 0;
  double last_step = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // a line that a kill cut short
    ++number;
    const std::string where = fmt::format("{}: line {}", file.string(), number);
    const Json json = parse_json(std::string_view(text).substr(begin, end - begin), where);
    const JsonObject line(json, where);
    last_step = line.number("step");
    for (Curve& curve : curves) {
      if (line.has(curve.name)) curve.points.emplace_back(last_step, line.number(curve.name));
    }
    begin = end + 1;
  }
  if (number == 0) {
    page.notes.push_back("metrics.jsonl is empty: no step was done yet");
    return;
  }
  page.facts.emplace_back("steps done", fmt::format("{:.0f}", last_step));
  if (!curves[0].points.empty())
    page.facts.emplace_back("last loss", fmt::format("{:.4f}", curves[0].points.back().second));
  if (!curves[1].points.empty()) {
    page.facts.emplace_back("last evaluation loss", fmt::format("{:.4f}", curves[1].points.back().second));
  }
  for (Curve& curve : curves) {
    if (!curve.points.empty()) page.training.push_back(std::move(curve));
  }
}

}  // namespace

PageData page_of_plan(const plan::Program& program, const graph::Graph& graph, const plan::Timeline& predicted,
                      const hw::Profile& machine) {
  PageData page;
  page.title = fmt::format("LazyTrain plan: {}", program.policy.name);
  page.facts = facts_of(program, graph, predicted, machine);
  page.timeline_title = "predicted step";
  page.step_s = predicted.step_s;
  for (const plan::Span& span : predicted.spans) {
    const plan::Instruction& i = program.instructions[static_cast<size_t>(span.instruction)];
    page.slices.push_back({std::string(name_of(i.lane)), plan::label(program, graph, span.instruction),
                           std::string(i.action == plan::Action::kCompute ? name_of(i.pass) : name_of(i.action)),
                           span.start_s, span.end_s});
  }
  page.memory = memory_of(program, predicted);
  page.tiles = tiles_of(program, graph);
  for (const plan::MemoryRow& row : plan::memory_table(program)) {
    page.table.push_back({std::string(name_of(row.tier)), std::string(name_of(row.purpose)), row.bytes});
  }
  return page;
}

void add_run(const fs::path& run, PageData& page) {
  page.title = fmt::format("LazyTrain run: {}", fs::absolute(run).lexically_normal().string());
  if (fs::exists(run / "trace.json")) {
    read_trace(run / "trace.json", page);
    page.timeline_title = "last step, measured";
    page.facts.emplace_back("measured step", format_seconds(page.step_s));
  } else {
    page.notes.push_back("no trace.json yet (it is written at the end of a run): lanes and memory are the prediction");
  }
  if (fs::exists(run / "metrics.jsonl")) {
    read_metrics(run / "metrics.jsonl", page);
  } else {
    page.notes.push_back("no metrics.jsonl: no step was done yet");
  }
}

}  // namespace lazytrain::report
