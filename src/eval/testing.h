// Small random models in a folder of their own, for the tests of this room.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "model/config_testing.h"
#include "model/family.h"
#include "model/init.h"
#include "model/safetensors_writer.h"

namespace lazytrain::eval::testing {

using model::testing::llama_json;
using model::testing::qwen2_json;
using model::testing::with;

// A model folder that is removed at the end: config.json and fp32 weights.
class ModelFolder {
 public:
  // The weights are wide (0.3), so that logits stand apart by far more than rounding.
  explicit ModelFolder(const Json& config, uint64_t seed = 1, std::string left_out = "") {
    std::string name = (std::filesystem::temp_directory_path() / "lazytrain_eval_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw RunError("no temporary folder");
    path_ = name;
    write("config.json", config.dump());
    const graph::Graph graph = model::build_graph(model::parse_config(config, "config.json"));
    std::vector<graph::Parameter> parameters;
    std::vector<model::TensorSpec> tensors;
    for (const graph::Unit& unit : graph.units) {
      for (const graph::Parameter& p : unit.params) {
        if (p.tied || p.name == left_out) continue;
        parameters.push_back(p);
        tensors.push_back({p.name, DType::kF32, p.shape});
      }
    }
    model::write_model_weights(path_, tensors, [&](size_t i, const model::TensorSink& sink) {
      std::vector<float> values(static_cast<size_t>(parameters[i].elements));
      model::fill_initial(parameters[i], 0.3, seed, values);
      if (parameters[i].init == graph::Init::kZeros) {  // biases that do nothing would hide whether they are read
        for (size_t e = 0; e < values.size(); ++e) values[e] = 0.01f * static_cast<float>(e % 7);
      }
      sink(std::as_bytes(std::span(values)));
    });
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const { write_file(path_ / name, text); }

 private:
  std::filesystem::path path_;
};

// Random ids below `vocabulary`.
inline std::vector<int32_t> random_ids(int64_t count, uint64_t stream, uint64_t vocabulary = 300) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>(CounterRng(5, stream).below(static_cast<uint64_t>(i), vocabulary)));
  }
  return ids;
}

inline std::vector<std::vector<int32_t>> random_prompts(const std::vector<int64_t>& lengths) {
  std::vector<std::vector<int32_t>> prompts;
  for (const int64_t length : lengths) prompts.push_back(random_ids(length, prompts.size()));
  return prompts;
}

}  // namespace lazytrain::eval::testing
