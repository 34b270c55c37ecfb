// Policies against each other in measured step time, on emulated machines that are to a small model what h800-paper and
// h100-sxm are to Qwen2.5-14B at 96 x 1024 tokens: its own shape, every width a 32nd, in a step of 96 x 32.
//   policies LAZYTRAIN FOLDER [--seconds N] [--only TEXT]     called again, it goes on with the runs that are missing
#include <fmt/format.h>

#include <cstdio>
#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "model/config.h"
#include "model/family.h"
#include "plan/planner.h"
#include "runtime/executor.h"
#include "training_runs.h"

namespace lazytrain::bench {
namespace {

constexpr plan::Shape kShape{.batch = 96, .micro_batch = 24, .seq = 32};
constexpr double kTimeLimit = 10;  // of the solver, seconds

// Qwen2.5-14B: 40 heads become 5 of a quarter of their width.
Json shape() {
  return {{"model_type", "qwen2"},    {"hidden_size", 160},           {"intermediate_size", 432},
          {"num_attention_heads", 5}, {"num_key_value_heads", 1},     {"num_hidden_layers", 48},
          {"vocab_size", 4752},       {"rms_norm_eps", 1e-5},         {"rope_theta", 1000000.0},
          {"hidden_act", "silu"},     {"tie_word_embeddings", false}, {"max_position_embeddings", 1024},
          {"initializer_range", 0.04}};
}

struct Variant {
  std::string name;
  std::string policy;  // of a run; empty: the planner's without a part
  std::string state = "fp32";
  std::function<void(plan::PlanningTask&)> leave_out = {};
};

std::vector<Variant> variants() {
  return {{"megatrain", "megatrain"},
          {"zero3-offload", "zero3-offload"},
          {"every-layer", "every-layer"},
          {"lazytrain-paper", "lazytrain-paper"},
          {"lazytrain", "lazytrain"},
          {"lazytrain-no-retained", "", "fp32", [](plan::PlanningTask& task) { task.retained_sets = false; }},
          {"lazytrain-no-chase", "", "fp32", [](plan::PlanningTask& task) { task.chase = false; }},
          {"lazytrain-8bit", "lazytrain", "8bit"}};
}

// The task of a run, from the machine that stands in its plan.
class Task {
 public:
  Task(const Json& run_plan, const std::filesystem::path& model)
      : config_(model::load_config(model)),
        graph_(model::build_graph(config_)),
        machine_(hw::profile_from_json(run_plan.at("profile"), "plan.json")),
        task_{.graph = graph_,
              .machine = machine_,
              .shape = kShape,
              .scratch_bytes = [](const graph::OpKind& kind,
                                  const graph::Dims& dims) { return runtime::Executor::scratch_bytes(kind, dims, 1); },
              .budget = plan::tier_gb(machine_.device_bytes, machine_.host_bytes, 0)} {}

  // Nothing recomputed, everything hidden.
  double bound_s() const { return plan::make_instance(task_).bound_s(); }

  std::string plan_without(const std::function<void(plan::PlanningTask&)>& leave_out) const {
    plan::PlanningTask task = task_;
    leave_out(task);
    const plan::PlannedStep step = plan::plan_step(task, {"", kTimeLimit, 0.005}, false);
    Json json = plan::to_json(step.program.policy);
    json["compute"] = "bf16";
    json["profile"] = hw::to_json(machine_);
    json["model_config"] = config_.raw;
    return json.dump(2);
  }

 private:
  model::ModelConfig config_;
  graph::Graph graph_;
  hw::Profile machine_;
  plan::PlanningTask task_;
};

struct Machine {
  std::string name;
  TrainingRuns& runs;
  std::filesystem::path model;

  std::string run_name(const std::string& variant) const { return name + "-" + variant; }

  std::optional<Json> run(const Variant& variant) const {
    std::string policy = variant.policy;
    if (variant.leave_out) {
      const std::filesystem::path file = runs.folder() / (run_name(variant.name) + "-plan.json");
      if (!std::filesystem::exists(runs.folder() / run_name("lazytrain") / "plan.json")) return std::nullopt;
      if (!std::filesystem::exists(file)) {
        write_file(file, Task(runs.plan_of(run_name("lazytrain")), model).plan_without(variant.leave_out));
      }
      policy = file.string();
    }
    const std::string like =
        fmt::format("device.like={}/configs/qwen2.5-14b.json@{}@96x1024", LAZYTRAIN_SOURCE_DIR, name);
    return runs.run(
        run_name(variant.name), model,
        {fmt::format("plan.policy={}", policy), like, fmt::format("seq={}", kShape.seq),
         fmt::format("batch={}", kShape.batch), fmt::format("micro_batch={}", kShape.micro_batch),
         fmt::format("optimizer.state={}", variant.state), "steps=3", fmt::format("plan.time_limit={}", kTimeLimit)});
  }

  void table() const {
    fmt::print(
        "\n14B at 96 x 1024 on {}, acted by its shape at a 32nd of the width at {} x {}\n\n"
        "| policy | predicted | measured | over megatrain | of the no-recompute bound | worst busy lane |\n"
        "|---|---|---|---|---|---|\n",
        name, kShape.batch, kShape.seq);
    double baseline_s = 0;
    for (const Variant& variant : variants()) {
      const auto summary = run(variant);
      if (!summary) continue;
      if (summary->is_null()) {
        fmt::print("| {} | failed | | | | |\n", variant.name);
        continue;
      }
      const Json& measured = summary->at("measured");
      const double measured_s = measured.at("step_s").get<double>();
      if (variant.name == "megatrain") baseline_s = measured_s;
      const double bound_s = Task(runs.plan_of(run_name(variant.name)), model).bound_s();
      std::string lane;
      double most = 0;
      for (const std::string_view other : plan::kLaneNames) {
        const double percent = busy_percent(measured, std::string(other));
        if (other == "compute" || percent <= most) continue;
        most = percent;
        lane = other;
      }
      fmt::print("| {} | {} | {} | {} | {:.0f} % | {} {:.0f} % |\n", variant.name,
                 format_seconds(summary->at("predicted").at("step_s").get<double>()), format_seconds(measured_s),
                 baseline_s > 0 ? fmt::format("{:.2f}x", baseline_s / measured_s) : "", 100 * bound_s / measured_s,
                 lane, most);
      std::fflush(stdout);
    }
  }
};

int policies(const std::vector<std::string>& words) {
  TrainingRuns runs(words);
  const auto model = runs.model("14b-like", shape());
  for (const char* name : {"h800-paper", "h100-sxm"}) Machine{name, runs, model}.table();
  if (runs.left() > 0) fmt::print("\n{} runs are missing: call it again\n", runs.left());
  return 0;
}

}  // namespace
}  // namespace lazytrain::bench

int main(int argc, char** argv) {
  try {
    return lazytrain::bench::policies({argv, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
