// The published tables (arXiv 2608.11919) beside what this program predicts for the same systems, and our own policy on
// the same machines. Nothing is measured here: policies are compiled and simulated.
//
// What is calibrated, and on what:
// - One sustained rate a GPU and model, so that MegaTrain's simulated tokens/s are the published ones. All other
// figures
//   follow from it: LazyTrain's rows, its ablations and ZeRO-3's.
// - One bandwidth of host memory a machine, for its updates, which the paper does not give: from those rows of ZeRO-3
// in
//   which the update is what remains to be explained (14B on the H800, 3B and 7B on the 3090).
// Links, memory and launch costs are those of the profiles h800-paper and rtx3090. Runs on the 3090 are taken with
// 8-bit moments: their host memory is 7 to 8 bytes a parameter, which fp32 moments (12 with the weights) do not fit.
//
// What lies beyond 5 %, and why:
// - 27B on the H800, its published schedule and its ablation without MILP: their layer-forwards (269 and 304 of
//   MegaTrain's 320) explain 1.17x and 1.05x of the published 1.27x and 1.11x. The column "update hidden" shows that
//   they are explained when LazyTrain's update, unlike MegaTrain's, overlaps the next forward, which the paper does not
//   say and its other rows do not show.
// - 27B on the 3090: at one sequence a step MegaTrain streams 146 GB of weights in 7.3 s, so this model calibrates a
// rate
//   that is bounded by the link and then gains from a second sequence, where the published rows do not.
// - ZeRO-3: on the H800 the 3B and 7B rows last 8.6 s a step each, though weights, update and compute double; the 27B
// row
//   lasts 3.8 s, in which its weights cannot be read twice at 12 GB/s (8.1 s).
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "hw/profile.h"
#include "model/config.h"
#include "model/family.h"
#include "optim/state_layout.h"
#include "plan/lazytrain_paper.h"
#include "plan/planner.h"

namespace lazytrain::plan {
namespace {

constexpr int64_t kSeq = 1024;
constexpr double kGib = 1.073741824;  // GB
constexpr double kHostBandwidthH800 = 150e9, kHostBandwidth3090 = 450e9;
constexpr const char* kHybrid = "hybrid:0.02";

struct Row {  // batch 0: out of memory
  int64_t batch;
  double tok_per_s;
};
struct Published {
  const char* gpu;
  const char* model;
  const char* config;
  double parameters;  // N of their TFLOPS
  Row zero3, megatrain, lazytrain;
};
const std::vector<Published> kSpeed = {
    {"H800", "3B", "qwen2.5-3b.json", 3e9, {32, 3814}, {192, 7933}, {192, 9801}},
    {"H800", "7B", "qwen2.5-7b.json", 7e9, {16, 1902}, {144, 3842}, {144, 4758}},
    {"H800", "14B", "qwen2.5-14b.json", 14e9, {8, 1112}, {96, 2047}, {96, 2528}},
    {"H800", "27B", "qwen3.6-27b.json", 27e9, {2, 534}, {72, 1075.8}, {72, 1361}},
    {"3090", "3B", "qwen2.5-3b.json", 3e9, {1, 23.91e12 / 6 / 3e9}, {7, 1792}, {8, 2210}},
    {"3090", "7B", "qwen2.5-7b.json", 7e9, {1, 27.49e12 / 6 / 7e9}, {5, 768}, {6, 951}},
    {"3090", "14B", "qwen2.5-14b.json", 14e9, {0, 0}, {3, 341}, {4, 422}},
    {"3090", "27B", "qwen3.6-27b.json", 27e9, {0, 0}, {1, 140}, {2, 174}},
};
constexpr double kMinusMilp = 1195, kMinusHybrid = 1357;
// Boundaries of the published 27B schedule.
const std::vector<int> kDevice = {0,  10, 15, 16, 20, 22, 23, 24, 28, 29, 32, 36, 39, 40, 41,
                                  42, 43, 44, 48, 50, 51, 52, 56, 57, 58, 59, 60, 62, 63, 64};
const std::vector<int> kHost = {1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 26, 27, 30, 31, 33, 34, 35, 38, 49};
const std::vector<int> kDisk = {21};
const TierGb kCapacities27b = {21.55 * kGib, 15 * kGib, 32 * kGib};

graph::Graph graph_of(const char* config) {
  return model::build_graph(model::load_config(std::string(LAZYTRAIN_SOURCE_DIR) + "/configs/" + config));
}

hw::Profile machine_of(const std::string& gpu) {
  hw::Profile machine = hw::find_profile(gpu == "H800" ? "h800-paper" : "rtx3090");
  machine.host_bandwidth = gpu == "H800" ? kHostBandwidthH800 : kHostBandwidth3090;
  machine.gemm_half_rows = 0;  // one rate, whatever the batch
  return machine;
}

void set_rate(hw::Profile& machine, double flops) {
  machine.attention_flops *= flops / machine.gemm_flops;
  machine.gemm_flops = flops;
}

PlanningTask task_of(const graph::Graph& graph, const hw::Profile& machine, int64_t batch, const std::string& state) {
  PlanningTask task{
      .graph = graph, .machine = machine, .shape = {batch, batch, kSeq}, .scratch_bytes = {}, .budget = {}};
  task.optimizer_state = state;
  task.budget = tier_gb(machine.device_bytes, machine.host_bytes, machine.disk_bytes);
  return task;
}

double tok_per_s(const PlannedStep& step) {
  return static_cast<double>(step.program.policy.batch * kSeq) / step.timeline.step_s;
}

const char* moments(const std::string& gpu) { return gpu == "H800" ? "fp32" : "8bit"; }

PlannedStep named(const graph::Graph& graph, const hw::Profile& machine, const char* name, int64_t batch,
                  const char* state) {
  const PlanningTask task = task_of(graph, machine, batch, state);
  Policy policy = named_policy(name, graph, task.shape);
  policy.optimizer_state = state;
  return step_of(task, policy);
}

// The rate at which MegaTrain's simulated step is the published one; empty when its transfers alone take longer.
std::optional<double> calibrated_rate(const graph::Graph& graph, hw::Profile machine, const Row& megatrain,
                                      const char* state) {
  const Program program = named(graph, machine, "megatrain", megatrain.batch, state).program;
  const double target = static_cast<double>(megatrain.batch * kSeq) / megatrain.tok_per_s;
  double low = 1e12, high = 1e15;
  const auto too_slow = [&](double rate) {
    set_rate(machine, rate);
    return simulate(program, CostTable(graph, program, machine)).step_s > target;
  };
  if (too_slow(high)) return std::nullopt;
  for (int i = 0; i < 40; ++i) {
    const double rate = std::sqrt(low * high);
    (too_slow(rate) ? low : high) = rate;
  }
  return high;
}

double percent(double ours, double published) { return 100 * (ours / published - 1); }

void print_row(const Published& p, const char* system, int64_t batch, double published, double ours,
               const std::string& hidden = "") {
  fmt::print("| {} | {} | {} | {} | {:.0f} | {:.1f} | {:.0f} | {:.1f} | {:+.1f} % | {} |\n", p.gpu, p.model, system,
             batch, published, 6e-12 * p.parameters * published, ours, 6e-12 * p.parameters * ours,
             percent(ours, published), hidden);
}

// A row of LazyTrain's, also with an update that the next forward hides.
void print_lazytrain(const Published& p, const char* system, const PlanningTask& task, const PlannedStep& step,
                     double published) {
  PlanningTask with = task;
  with.shape.micro_batch = step.program.policy.micro_batch;
  Policy policy = step.program.policy;
  policy.update_chases_forward = true;
  print_row(p, system, p.lazytrain.batch, published, tok_per_s(step),
            fmt::format("{:+.1f} %", percent(tok_per_s(step_of(with, policy)), published)));
}

PaperPlan plan_with(const PaperInstance& in, const std::vector<std::pair<const std::vector<int>*, Tier>>& lists) {
  std::vector<std::optional<Tier>> homes(static_cast<size_t>(in.layers) + 1);
  for (const auto& [list, tier] : lists) {
    for (const int i : *list) homes[static_cast<size_t>(i)] = tier;
  }
  return price_paper_plan(in, homes);
}

// lazytrain-paper in one micro-batch where it fits, as published, else in halves.
std::optional<PlannedStep> lazytrain_paper(PlanningTask task, const std::optional<TierGb>& capacities) {
  for (;; task.shape.micro_batch = (task.shape.micro_batch + 1) / 2) {
    if (auto step = lazytrain_paper_step(task, {"", 30, -1}, capacities)) return step;
    if (task.shape.micro_batch == 1) return std::nullopt;
  }
}

std::string homes_text(const Policy& policy) {
  int counts[3] = {0, 0, 0}, recomputed = 0;
  for (const BoundaryPolicy& b : policy.boundaries) {
    if (b.checkpoint) {
      ++counts[static_cast<int>(b.home)];
    } else {
      ++recomputed;
    }
  }
  return fmt::format("{}/{}/{} on device/host/disk, {} recomputed", counts[0], counts[1], counts[2], recomputed);
}

void speed_27b(const Published& p, const PlanningTask& task, const Policy& solved) {
  const PaperInstance in = make_paper_instance(task, kCapacities27b);
  const PaperPlan published = plan_with(in, {{&kDevice, Tier::kDevice}, {&kHost, Tier::kHost}, {&kDisk, Tier::kDisk}});
  std::vector<int> fourth;
  for (int i = 0; i <= in.layers; i += 4) fourth.push_back(i);
  const PaperPlan interval = plan_with(in, {{&fourth, Tier::kDevice}});
  print_lazytrain(p, "LazyTrain, its published schedule", task, step_of(task, make_paper_policy(task, published)),
                  p.lazytrain.tok_per_s);
  print_lazytrain(p, "minus MILP (interval 4)", task, step_of(task, make_paper_policy(task, interval)), kMinusMilp);
  Policy full = solved;
  full.optimizer_state = "fp32";
  print_lazytrain(p, "minus hybrid 8-bit", task, step_of(task, full), kMinusHybrid);
}

void speed() {
  fmt::print(
      "| GPU | model | system | batch | published tok/s | TFLOPS | ours tok/s | TFLOPS | error | update hidden |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n");
  std::string notes;
  double rate = 0;
  for (const Published& p : kSpeed) {
    const graph::Graph graph = graph_of(p.config);
    const bool h800 = std::string(p.gpu) == "H800";
    const char* state = moments(p.gpu);
    hw::Profile machine = machine_of(p.gpu);
    const auto calibrated = calibrated_rate(graph, machine, p.megatrain, state);
    rate = calibrated.value_or(rate);  // of the next smaller model where none can be had
    set_rate(machine, rate);
    print_row(p, calibrated ? "MegaTrain (calibrated)" : "MegaTrain (rate of 14B)", p.megatrain.batch,
              p.megatrain.tok_per_s, tok_per_s(named(graph, machine, "megatrain", p.megatrain.batch, state)));
    const PlanningTask task = task_of(graph, machine, p.lazytrain.batch, h800 ? kHybrid : state);
    const bool main_run = h800 && std::string(p.model) == "27B";
    const auto step = lazytrain_paper(task, main_run ? std::optional(kCapacities27b) : std::nullopt);
    if (step) {
      print_lazytrain(p, "LazyTrain", task, *step, p.lazytrain.tok_per_s);
      notes += fmt::format("- {} {}: {:.1f} TFLOPS sustained; LazyTrain {}, micro-batch {}\n", p.gpu, p.model,
                           rate / 1e12, homes_text(step->program.policy), step->program.policy.micro_batch);
    } else {
      fmt::print("| {} | {} | LazyTrain | {} | does not fit | | | | | |\n", p.gpu, p.model, p.lazytrain.batch);
    }
    if (main_run && step) speed_27b(p, task, step->program.policy);
    if (p.zero3.batch > 0) {
      print_row(p, "ZeRO-3 offload", p.zero3.batch, p.zero3.tok_per_s,
                tok_per_s(named(graph, machine, "zero3-offload", p.zero3.batch, state)));
    }
  }
  fmt::print("\nHost memory: {:.0f} GB/s beside the H800, {:.0f} GB/s beside the 3090.\n{}\n", kHostBandwidthH800 / 1e9,
             kHostBandwidth3090 / 1e9, notes);
}

void schedule() {
  PaperInstance in;
  in.name = "27B";
  in.layers = 64;
  in.boundary_gb.assign(65, 0.703 * kGib);
  in.recompute_ms.assign(64, 14);
  in.out_window_ms.assign(64, 70);
  in.back_window_ms.assign(64, 70);
  in.gradient_gb.assign(64, 0);
  in.parameter_gb.assign(64, 0);
  in.links_gbs = {12, 12, 0, 2.83, 3.35};
  in.budget_gb = kCapacities27b;
  in.max_block = 4;
  const auto line = [](const char* what, const PaperSolution& s) {
    fmt::print("| {} | {} / {} / {} | {} | {:.5f} | {:.4f} | {} | {:.2f} |\n", what, s.plan->count(Tier::kDevice),
               s.plan->count(Tier::kHost), s.plan->count(Tier::kDisk), s.plan->count(std::nullopt), s.plan->objective,
               s.plan->exposed_ms, name_of(s.status), s.solve_s);
  };
  fmt::print(
      "| 27B, published formulation | device / host / disk | recomputed | objective | exposed ms | status | s |\n"
      "|---|---|---|---|---|---|---|\n"
      "| published | 30 / 21 / 1 | 13 | 182.0015 | 0 | restricted | |\n");
  const PaperPlan lists = plan_with(in, {{&kDevice, Tier::kDevice}, {&kHost, Tier::kHost}, {&kDisk, Tier::kDisk}});
  PaperInstance restricted = in;
  restricted.fixed = PaperFixed{{}, kDevice};
  for (int i = 0; i <= in.layers; ++i) {
    if (lists.homes[static_cast<size_t>(i)]) restricted.fixed->checkpoints.push_back(i);
  }
  line("restricted", solve_paper(restricted, {"", 60, 0}));
  line("free", solve_paper(in, {"", 60, 0}));
  fmt::print("\n");
}

// The paper's host base: the difference of the two rows is that of the moments alone; the 32 GiB, which it does not
// name, are what is left of either.
void admission() {
  constexpr double kHidden = 2880, kKv = 512, kExperts = 128, kLayers = 36, kVocabulary = 201088, kAllowed = 360;
  const double layer = 2 * kHidden * kHidden + 2 * kHidden * kKv + kExperts * (3 * kHidden * kHidden + kHidden);
  const double parameters = kLayers * layer + 2 * kVocabulary * kHidden;
  const auto row = [&](const char* what, const char* moments, double published) {
    const auto state = static_cast<double>(optim::planned_state_bytes(moments, std::llround(parameters)));
    const double gib = (parameters * (2 + 2) + state) / (kGib * 1e9) + 32;
    fmt::print("| {} | {:.2f} | {:.2f} | {:+.4f} % | {:.2f} | {:.2f} |\n", what, published, gib,
               percent(gib, published), published - kAllowed, gib - kAllowed);
  };
  fmt::print(
      "GPT-OSS-120B by the paper's count of {:.2f} B: bf16 weights and gradients, two fp32 moments or their 8-bit "
      "form, "
      "and 32 GiB besides\n\n"
      "| host base | published GiB | ours GiB | error | published short of 360 | ours |\n|---|---|---|---|---|---|\n",
      parameters / 1e9);
  row("2 % in 8-bit", kHybrid, 1321.38);
  row("all in 8-bit", "hybrid:1", 683.41);
  const double ms = kLayers * 2 * (2 * (layer + 2 * kHidden) / 12e9 - 0.1) * 1000;
  fmt::print(
      "| exposed by weights and gradients at 12 GB/s, 100 ms windows | 31259.54 ms | {:.2f} ms | {:+.4f} % | | |\n\n",
      ms, percent(ms, 31259.54));
}

void own_policy() {
  const Published& p = kSpeed[2];
  const graph::Graph graph = graph_of(p.config);
  hw::Profile machine = machine_of(p.gpu);
  set_rate(machine, calibrated_rate(graph, machine, p.megatrain, "fp32").value());
  fmt::print(
      "| 14B, batch {}, calibrated H800 | MegaTrain s | LazyTrain (paper) s | lazytrain s | no plan below s | over "
      "MegaTrain | over the paper's |\n|---|---|---|---|---|---|---|\n",
      p.megatrain.batch);
  for (const double gbs : {12.0, 55.0}) {
    machine.links.h2d = machine.links.d2h = gbs * 1e9;
    machine.links.joint = 2 * gbs * 1e9;
    const double baseline = named(graph, machine, "megatrain", p.megatrain.batch, "fp32").timeline.step_s;
    PlanningTask task = task_of(graph, machine, p.megatrain.batch, "fp32");
    task.budget.disk = 0;
    const auto paper = lazytrain_paper(task, {});
    const PlannedStep own = plan_step(task, {"", 60, -1}, true);
    const double own_s = own.timeline.step_s, paper_s = paper ? paper->timeline.step_s : NAN;
    fmt::print("| link {:.0f} GB/s | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.3f}x | {:.3f}x |\n", gbs, baseline, paper_s,
               own_s, own.program.policy.bound_s, baseline / own_s, paper_s / own_s);
  }
  fmt::print("\n");
}

// The largest micro-batch up to the published batch with which a plan is found by the greedy rule.
std::optional<PlannedStep> greedy_step(PlanningTask task) {
  for (;; task.shape.micro_batch /= 2) {
    try {
      return plan_step(task, {"greedy", 10, -1}, false);
    } catch (const Infeasible&) {
      if (task.shape.micro_batch == 1) return std::nullopt;
    }
  }
}

// Batches of 8 and more times the published one.
void largest_batches() {
  fmt::print(
      "| 3090 | published batch | planned | factor | micro-batch | device GB | host GB | tok/s | published tok/s |\n"
      "|---|---|---|---|---|---|---|---|---|\n");
  for (const Published& p : kSpeed) {
    if (std::string(p.gpu) != "3090") continue;
    const graph::Graph graph = graph_of(p.config);
    const hw::Profile machine = hw::find_profile("rtx3090");
    std::optional<PlannedStep> best;
    for (const int64_t factor : {8, 16, 32}) {
      PlanningTask task = task_of(graph, machine, p.lazytrain.batch * factor, moments(p.gpu));
      task.shape.micro_batch = p.lazytrain.batch;
      task.budget.disk = 0;
      auto step = greedy_step(task);
      if (!step) break;
      best = std::move(step);
    }
    if (!best) {
      fmt::print("| {} | {} | none of 8 times it | | | | | | |\n", p.model, p.lazytrain.batch);
      continue;
    }
    const Policy& policy = best->program.policy;
    fmt::print("| {} | {} | {} | {}x | {} | {:.1f} | {:.1f} | {:.0f} | {:.0f} |\n", p.model, p.lazytrain.batch,
               policy.batch, policy.batch / p.lazytrain.batch, policy.micro_batch,
               static_cast<double>(best->program.tier_bytes[0]) / 1e9,
               static_cast<double>(best->program.tier_bytes[1]) / 1e9, tok_per_s(*best), p.lazytrain.tok_per_s);
  }
}

}  // namespace

void run_tables() {
  for (const auto table : {speed, schedule, admission, own_policy, largest_batches}) {
    table();
    std::fflush(stdout);
  }
}

}  // namespace lazytrain::plan

int main() {
  try {
    lazytrain::plan::run_tables();
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
}
