#include "plan/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/units.h"
#include "plan/exposure.h"
#include "plan/letters.h"

namespace lazytrain::plan {
namespace {

constexpr int kMapWidth = 64;  // cells a line of the placement map

std::string_view meaning_of(Kept kept) {
  switch (kept) {
    case Kept::kRetained:
      return "retained set kept";
    case Kept::kCheckpoint:
      return "boundary checkpoint, the unit run again";
    case Kept::kNothing:
      return "recomputed from the checkpoint before it";
    case Kept::kRows:
      return "embedding rows on the host";
    case Kept::kLoss:
      return "loss and backward in one";
  }
  return "";
}

std::string policy_line(const Program& program, const graph::Graph& graph) {
  const Policy& p = program.policy;
  return fmt::format("plan: {}, batch {} in {} micro-batch{} of {}, seq {}, compute {}, {} units, {} parameters\n",
                     p.name, p.batch, program.micro_batches, program.micro_batches == 1 ? "" : "es", p.micro_batch,
                     p.seq, program.compute == DType::kF32 ? "fp32" : "bf16", graph.units.size(),
                     format_count(static_cast<double>(graph.parameter_count())));
}

std::string placement_map(const Program& program, const graph::Graph& graph) {
  std::string cells;
  std::map<Kept, int> seen;
  for (int u = 0; u < static_cast<int>(graph.units.size()); ++u) {
    const Kept kept = kept_of(program, graph, u);
    if (u > 0 && u % kMapWidth == 0) cells += "\n           ";
    cells += static_cast<char>(kept);
    ++seen[kept];
  }
  std::string text = fmt::format("placement: {}\n", cells);
  for (const auto& [kept, units] : seen) {
    text += fmt::format("           {} {} ({} unit{})\n", static_cast<char>(kept), meaning_of(kept), units,
                        units == 1 ? "" : "s");
  }
  return text;
}

// Device blue, host yellow, disk magenta; letters that name no home stay as they are.
std::string painted(const std::string& cells, std::string_view device, std::string_view host, std::string_view disk) {
  std::string text;
  for (const char cell : cells) {
    const auto in = [cell](std::string_view letters) { return letters.find(cell) != std::string_view::npos; };
    const std::string_view code = in(device) ? "\033[34m" : in(host) ? "\033[33m" : in(disk) ? "\033[35m" : "";
    text += code.empty() ? std::string(1, cell) : fmt::format("{}{}\033[0m", code, cell);
  }
  return text;
}

// Three lines, a letter a layer: the boundary before it, its retained set with the set's home below, its weights.
std::string tiers_map(const Program& program, const graph::Graph& graph, bool colour) {
  const Policy& policy = program.policy;
  std::string boundaries, sets, homes, weights, legend;
  std::vector<std::string> names;
  for (size_t u = 1; u + 1 < graph.units.size(); ++u) {
    const BoundaryPolicy& boundary = policy.boundaries[u - 1];
    boundaries += boundary.checkpoint ? letter_of(boundary.home) : '.';
    const UnitPolicy& unit = policy.units[u];
    const std::string name = unit.retained.empty() ? "nothing" : fmt::format("{}", fmt::join(unit.retained, "+"));
    const auto at = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (at == names.size()) names.push_back(name);
    sets += at < 26 ? static_cast<char>('a' + at) : '+';
    homes += unit.retained.empty() ? '.' : letter_of(unit.retained_home);
    weights += weights_letter(unit.weight_home == Tier::kDevice, unit.keep_weights, unit.weight_home == Tier::kDisk,
                              unit.optimizer_home == Tier::kDisk);
  }
  for (size_t i = 0; i < std::min<size_t>(names.size(), 26); ++i) {
    legend += fmt::format("           {} {}\n", static_cast<char>('a' + i), names[i]);
  }
  if (colour) {
    boundaries = painted(boundaries, "D", "H", "N");
    homes = painted(homes, "D", "H", "N");
    weights = painted(weights, "vk", "s", "tn");
  }
  return fmt::format("boundary:  {}   {}, . recomputed\n", boundaries, kHomeLegend) +
         fmt::format("retained:  {}   which set, by letter\n           {}   its home\n{}", sets, homes, legend) +
         fmt::format("weights:   {}   {}\n", weights, kWeightsLegend);
}

std::string_view explain(Lane lane) {
  switch (lane) {
    case Lane::kCompute:
      return "compute";
    case Lane::kH2D:
      return "the link into the device";
    case Lane::kD2H:
      return "the link out of the device";
    case Lane::kHost:
      return "the host (optimizer, embedding rows)";
    case Lane::kDiskRead:
      return "reads from disk";
    case Lane::kDiskWrite:
      return "writes to disk";
  }
  return "";
}

std::string limit_lines(const Program& program, const graph::Graph& graph, const Timeline& timeline,
                        const hw::Profile& machine) {
  std::string text;
  for (const Exposure& e : exposures(program, graph, timeline, machine)) {
    text += fmt::format("{}{} a step for {}, in {} to {}; twice its rate would save {}\n",
                        text.empty() ? "waits:     " : "           ", format_seconds(e.seconds), explain(e.lane),
                        graph.units[static_cast<size_t>(e.first_unit)].name,
                        graph.units[static_cast<size_t>(e.last_unit)].name, format_seconds(std::max(0.0, e.saved_s)));
  }
  return text.empty() ? "waits:     none worth a line: compute is what limits\n" : text;
}

std::string solver_line(const Policy& policy, double step_s) {
  if (policy.bound_s <= 0) return "";
  // The gap is that of the mathematical program; what is compiled and simulated may take longer than it says.
  return fmt::format("solver:    {}, gap {:.2f}% to a bound of {}; simulated {:.1f}% above it\n", policy.solver,
                     100 * policy.gap, format_seconds(policy.bound_s),
                     std::max(0.0, 100 * (step_s / policy.bound_s - 1)));
}

std::string update_line(const Program& program) {
  if (!program.policy.update_in_backward) return "";
  double early = 0, all = 0;
  for (const UnitState& state : program.state) {
    for (const StatePiece& piece : state) {
      all += static_cast<double>(piece.elements);
      if (piece.early) early += static_cast<double>(piece.elements);
    }
  }
  return fmt::format("updates:   {:.0f}% of the parameters in backward, which takes gradients that are not clipped\n",
                     100 * early / all);
}

std::string against(int64_t limit) { return limit > 0 ? fmt::format(" of {} allowed", format_bytes(limit)) : ""; }

std::string memory_lines(const Program& program, const Budgets& budgets) {
  const std::array<int64_t, 3> limits = {budgets.device, budgets.host, budgets.disk};
  std::string text;
  int64_t sum = 0;
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    const int64_t bytes = program.tier_bytes[static_cast<size_t>(tier)];
    if (bytes == 0) continue;
    if (tier != Tier::kDisk) sum += bytes;
    text += fmt::format("memory:    {:<24}{:>9}{}\n", name_of(tier), format_bytes(bytes),
                        against(limits[static_cast<size_t>(tier)]));
    for (const MemoryRow& row : memory_table(program)) {
      if (row.tier == tier)
        text += fmt::format("             {:<22}{:>9}\n", name_of(row.purpose), format_bytes(row.bytes));
    }
  }
  for (const auto& [what, bytes] :
       {std::pair{"evaluation", budgets.evaluation}, {"the process itself", budgets.process}}) {
    if (bytes > 0) text += fmt::format("           {:<24}{:>9}\n", what, format_bytes(bytes));
  }
  if (!program.one_memory) return text;
  return text +
         fmt::format("           {:<24}{:>9}{}\n", "all (one memory)", format_bytes(sum + budgets.besides()),
                     budgets.available > 0 ? fmt::format(" of {} available", format_bytes(budgets.available)) : "");
}

std::string figure_lines(const Figures& f, const hw::Profile& machine) {
  std::string text;
  for (size_t lane = 0; lane < f.busy_s.size(); ++lane) {
    if (f.busy_s[lane] <= 0) continue;
    text += fmt::format("{}{:<24}{:>9} busy, {:.0f}% of the step\n", text.empty() ? "lanes:     " : "           ",
                        kLaneNames[lane], format_seconds(f.busy_s[lane]), 100 * f.busy_s[lane] / f.step_s);
  }
  text += fmt::format("           {:<24}{:>9}, {:.1f}% of the step\n", "exposed", format_seconds(f.exposed_s),
                      100 * f.exposed_s / f.step_s);
  return text +
         fmt::format("predicted: {} a step, {:.0f} tokens/s, {:.3g} TFLOPS (6 N tokens/s, {:.0f}% of {:.3g}) on {}\n",
                     format_seconds(f.step_s), f.tok_per_s, f.tflops, 1e14 * f.tflops / machine.gemm_flops,
                     machine.gemm_flops / 1e12, machine.name);
}

}  // namespace

Figures figures_of(const Program& program, const graph::Graph& graph, const Timeline& timeline) {
  const LaneSummary lanes = summarize(program, timeline);
  Figures f;
  f.step_s = timeline.step_s;
  f.exposed_s = lanes.exposed_s;
  f.busy_s = lanes.busy_s;
  f.peak_bytes = timeline.peak_bytes;
  f.tok_per_s = static_cast<double>(program.policy.batch * program.policy.seq) / timeline.step_s;
  f.tflops = 6e-12 * static_cast<double>(graph.matmul_parameters()) * f.tok_per_s;
  return f;
}

Json to_json(const Figures& f) {
  Json lanes = Json::object();
  for (size_t lane = 0; lane < f.busy_s.size(); ++lane) {
    if (f.busy_s[lane] > 0) lanes[std::string(kLaneNames[lane])] = {{"busy_s", f.busy_s[lane]}};
  }
  Json peak = Json::object();
  for (size_t tier = 0; tier < f.peak_bytes.size(); ++tier) peak[std::string(kTierNames[tier])] = f.peak_bytes[tier];
  return {{"step_s", f.step_s}, {"exposed_s", f.exposed_s}, {"lanes", lanes},
          {"peak_bytes", peak}, {"tok_per_s", f.tok_per_s}, {"tflops", f.tflops}};
}

Kept kept_of(const Program& program, const graph::Graph& graph, int unit) {
  const auto u = static_cast<size_t>(unit);
  if (graph.units[u].kind == graph::UnitKind::kEmbedding) return Kept::kRows;
  if (graph.units[u].kind == graph::UnitKind::kHead) return Kept::kLoss;
  if (program.retained[u].bytes > 0) return Kept::kRetained;
  return program.policy.boundaries[u - 1].checkpoint ? Kept::kCheckpoint : Kept::kNothing;
}

std::string describe(const Program& program, const graph::Graph& graph, const Timeline& predicted,
                     const hw::Profile& machine, const Budgets& budgets, bool colour) {
  const std::string figures = figure_lines(figures_of(program, graph, predicted), machine);
  if (program.one_memory) {
    return policy_line(program, graph) + placement_map(program, graph) + memory_lines(program, budgets) +
           update_line(program) + figures;
  }
  return policy_line(program, graph) + tiers_map(program, graph, colour) + memory_lines(program, budgets) +
         limit_lines(program, graph, predicted, machine) + update_line(program) +
         solver_line(program.policy, predicted.step_s) + figures;
}

}  // namespace lazytrain::plan
