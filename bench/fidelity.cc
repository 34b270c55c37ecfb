// Predicted against measured: runs of five policies with two models on two emulated machines each. Limits: step time
// within 5 %, each lane's busy share within 5 points, bytes of the tiers equal, memory of the process within 2 % or
// 64 MB of the plan.
//   fidelity LAZYTRAIN FOLDER [--seconds N] [--only TEXT]     called again, it goes on with the runs that are missing
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/units.h"
#include "plan/words.h"
#include "training_runs.h"

namespace lazytrain::bench {
namespace {

constexpr double kStepPercent = 5, kLanePoints = 5, kMemoryPercent = 2, kMemoryBytes = 64e6;

struct Case {
  std::string model;
  std::string machine;
  std::vector<std::string> keys;
};

Json llama_shape() {
  return {{"model_type", "llama"},    {"hidden_size", 192},          {"intermediate_size", 512},
          {"num_attention_heads", 3}, {"num_key_value_heads", 1},    {"num_hidden_layers", 8},
          {"vocab_size", 448},        {"rms_norm_eps", 1e-5},        {"rope_theta", 10000.0},
          {"hidden_act", "silu"},     {"tie_word_embeddings", true}, {"max_position_embeddings", 1024},
          {"initializer_range", 0.04}};
}

Json qwen2_shape() {
  return {{"model_type", "qwen2"},    {"hidden_size", 256},           {"intermediate_size", 1408},
          {"num_attention_heads", 4}, {"num_key_value_heads", 1},     {"num_hidden_layers", 6},
          {"vocab_size", 2048},       {"rms_norm_eps", 1e-6},         {"rope_theta", 1000000.0},
          {"hidden_act", "silu"},     {"tie_word_embeddings", false}, {"max_position_embeddings", 1024},
          {"initializer_range", 0.02}};
}

std::vector<Case> cases() {
  const std::string configs = std::string(LAZYTRAIN_SOURCE_DIR) + "/configs/";
  const std::vector<std::string> llama = {"seq=256", "batch=8", "micro_batch=2"};
  const std::vector<std::string> qwen2 = {"seq=256", "batch=8", "micro_batch=4"};
  const auto with = [](std::vector<std::string> keys, const std::vector<std::string>& more) {
    keys.insert(keys.end(), more.begin(), more.end());
    return keys;
  };
  // Memory that does not hold everything: 8 boundaries are 6 MB, what layers retain fifteen times as much.
  return {{"llama", "rtx3090", with(llama, {"device.profile=rtx3090", "device.memory=50MB"})},
          {"llama", "h100-sxm", with(llama, {"device.profile=h100-sxm", "device.memory=50MB"})},
          {"qwen2", "rtx3090", with(qwen2, {"device.like=" + configs + "qwen2.5-7b.json@rtx3090@16x1024"})},
          {"qwen2", "h100-sxm", with(qwen2, {"device.like=" + configs + "qwen2.5-14b.json@h100-sxm@48x1024"})}};
}

struct Row {
  double predicted_s = 0, measured_s = 0, error = 0;
  double lane_points = 0;
  std::string lane;
  bool peaks_equal = false;
  double planned_bytes = 0, process_bytes = 0;

  explicit Row(const Json& summary) {
    const Json &predicted = summary.at("predicted"), &measured = summary.at("measured");
    predicted_s = predicted.at("step_s").get<double>();
    measured_s = measured.at("step_s").get<double>();
    error = 100 * (measured_s / predicted_s - 1);
    for (const std::string_view name : plan::kLaneNames) {
      const double points = busy_percent(measured, std::string(name)) - busy_percent(predicted, std::string(name));
      if (std::abs(points) <= std::abs(lane_points)) continue;
      lane_points = points;
      lane = name;
    }
    peaks_equal = predicted.at("peak_bytes") == measured.at("peak_bytes");
    planned_bytes = predicted.at("memory_bytes").get<double>();
    process_bytes = measured.at("memory_bytes").get<double>();
  }
  bool memory_holds() const {
    return std::abs(process_bytes - planned_bytes) <= std::max(kMemoryBytes, kMemoryPercent / 100 * planned_bytes);
  }
  bool within() const {
    return std::abs(error) <= kStepPercent && std::abs(lane_points) <= kLanePoints && peaks_equal && memory_holds();
  }
};

void print(const Case& at, const std::string& policy, const Row& row) {
  fmt::print("| {} | {} | {} | {} | {} | {:+.1f} % | {} {:+.1f} | {} | {} of {} | {} |\n", at.model, at.machine, policy,
             format_seconds(row.predicted_s), format_seconds(row.measured_s), row.error, row.lane, row.lane_points,
             row.peaks_equal ? "yes" : "no", format_bytes(static_cast<int64_t>(row.process_bytes)),
             format_bytes(static_cast<int64_t>(row.planned_bytes)), row.within() ? "yes" : "no");
}

int fidelity(const std::vector<std::string>& words) {
  TrainingRuns runs(words);
  const auto llama = runs.model("llama", llama_shape()), qwen2 = runs.model("qwen2", qwen2_shape());
  fmt::print(
      "| model | machine | policy | predicted | measured | error | worst lane, points | peaks equal | process, "
      "planned | within |\n|---|---|---|---|---|---|---|---|---|---|\n");
  int rows = 0, within = 0;
  for (const Case& at : cases()) {
    for (const char* policy : {"megatrain", "every-layer", "zero3-offload", "lazytrain-paper", "lazytrain"}) {
      const std::string name = fmt::format("{}-{}-{}", at.model, at.machine, policy);
      std::vector<std::string> keys = at.keys;
      keys.insert(keys.end(), {fmt::format("plan.policy={}", policy), "steps=4", "plan.time_limit=5"});
      const auto summary = runs.run(name, at.model == "llama" ? llama : qwen2, keys);
      if (!summary) continue;
      ++rows;
      if (summary->is_null()) {
        fmt::print("| {} | {} | {} | failed | | | | | | no |\n", at.model, at.machine, policy);
        continue;
      }
      const Row row(*summary);
      print(at, policy, row);
      within += row.within() ? 1 : 0;
      std::fflush(stdout);
    }
  }
  fmt::print("{} of {} rows within the limits", within, rows);
  fmt::print("{}\n", runs.left() > 0 ? fmt::format("; {} not run yet", runs.left()) : "");
  return within == rows && runs.left() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lazytrain::bench

int main(int argc, char** argv) {
  try {
    return lazytrain::bench::fidelity({argv, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
