#include "eval/inference_model.h"

#include <span>

#include "base/error.h"
#include "base/units.h"
#include "hw/profile.h"
#include "model/checkpoint_reader.h"
#include "model/family.h"
#include "model/parameter_tensors.h"
#include "model/tensor_convert.h"
#include "runtime/finite_weights.h"
#include "runtime/unit_runner.h"

namespace lazytrain::eval {
namespace {

// Where each unit's block starts, and behind the last one the number of elements of all.
std::vector<int64_t> block_offsets(const graph::Graph& graph) {
  std::vector<int64_t> offsets = {0};
  for (const graph::Unit& unit : graph.units) offsets.push_back(offsets.back() + unit.block_elements);
  return offsets;
}

// Before memory is taken for a model that has no kernels.
graph::Graph runnable_graph(const model::ModelConfig& config) {
  graph::Graph graph = model::build_graph(config);
  runtime::require_cpu_kernels(graph);
  return graph;
}

int64_t checked_bytes(int64_t bytes) {
  require_memory(bytes, "weights", "use --compute bf16 or a smaller model");
  return bytes;
}

}  // namespace

void require_memory(int64_t bytes, const char* purpose, const char* remedy) {
  const int64_t available = hw::available_memory();
  if (bytes > available) {
    throw RunError("{}: {} are needed and {} are available: {}", purpose, format_bytes(bytes), format_bytes(available),
                   remedy);
  }
}

InferenceModel::InferenceModel(const std::filesystem::path& folder, DType compute, ThreadPool& pool)
    : folder_(folder),
      config_(model::load_config(folder)),
      graph_(runnable_graph(config_)),
      compute_(compute),
      unit_offsets_(block_offsets(graph_)),
      arena_(checked_bytes(unit_offsets_.back() * size_of(compute)), "weights") {
  read_weights(pool);
}

std::string InferenceModel::describe_broken_weight() const {
  const auto broken =
      runtime::find_not_finite(graph_, [this](int unit, int parameter) { return weight(unit, parameter); });
  if (!broken) return "";
  const model::ModelFolder files(folder_);
  return fmt::format("{}: {}", model::tensor_of(*broken->parameter, files).file->where(), broken->describe());
}

void InferenceModel::read_weights(ThreadPool& pool) {
  const model::ModelFolder files(folder_);
  for (int u = 0; u < static_cast<int>(graph_.units.size()); ++u) {
    const auto& params = graph_.units[static_cast<size_t>(u)].params;
    for (int p = 0; p < static_cast<int>(params.size()); ++p) {
      const graph::Parameter& parameter = params[static_cast<size_t>(p)];
      if (parameter.tied) continue;
      const model::TensorEntry& tensor = model::tensor_of(parameter, files);
      const TensorView to = weight(u, p);
      const auto n = static_cast<size_t>(parameter.elements);
      if (compute_ == DType::kBF16) {
        model::read_as_master(tensor, std::span(to.row<bf16>(0), n), {}, 0, &pool);
      } else {
        model::read_as_f32(tensor, std::span(to.row<float>(0), n), 0, &pool);
      }
      tensor.file->drop(tensor);
    }
  }
  files.check_unchanged();
  model::warn_unread(graph_, files);
}

TensorView InferenceModel::weight(int unit, int parameter) const {
  const graph::Parameter& p = graph_.units[static_cast<size_t>(unit)].params[static_cast<size_t>(parameter)];
  const int64_t element = p.tied ? 0 : unit_offsets_[static_cast<size_t>(unit)] + p.offset;
  return runtime::parameter_view(p, arena_.at(element * size_of(compute_)), compute_);
}

}  // namespace lazytrain::eval
