#include "runtime/model_state.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <span>
#include <vector>

#include "base/error.h"
#include "model/init.h"
#include "model/tensor_convert.h"

namespace lazytrain::runtime {
namespace {

constexpr int64_t kInitPiece = int64_t{1} << 20;  // elements drawn at a time

void warn_unknown(const model::ModelFolder& folder, const std::set<std::string, std::less<>>& known, bool tied) {
  for (const model::TensorEntry* tensor : folder.tensors()) {
    if (known.contains(tensor->name)) continue;
    if (tied && tensor->name == "lm_head.weight") {
      spdlog::info("{}: lm_head.weight is ignored: the configuration ties it to the embedding", folder.path().string());
    } else {
      spdlog::warn("{}: tensor '{}' is not part of this model and is not read", folder.path().string(), tensor->name);
    }
  }
}

}  // namespace

ModelState::ModelState(const graph::Graph& graph, DType compute)
    : graph_(graph), layout_(plan::state_layout(graph, compute)), arena_(layout_.bytes, "weights and optimizer state") {}

optim::AdamWArrays ModelState::arrays(int unit, int parameter) const {
  const graph::Parameter& p = graph_.units[static_cast<size_t>(unit)].params[static_cast<size_t>(parameter)];
  const plan::UnitStateLayout& state = layout_.units[p.tied ? 0 : static_cast<size_t>(unit)];
  const int64_t offset = p.tied ? 0 : p.offset;
  std::byte* weights = arena_.at(state.weights);
  std::byte* moments = arena_.at(state.optimizer);
  return {reinterpret_cast<bf16*>(weights) + offset, reinterpret_cast<int16_t*>(weights) + state.elements + offset,
          reinterpret_cast<float*>(moments) + offset, reinterpret_cast<float*>(moments) + state.elements + offset};
}

std::byte* ModelState::gradient(int unit, int parameter) const {
  const graph::Parameter& p = graph_.units[static_cast<size_t>(unit)].params[static_cast<size_t>(parameter)];
  const plan::UnitStateLayout& state = layout_.units[p.tied ? 0 : static_cast<size_t>(unit)];
  return arena_.at(state.gradients) + layout_.gradient_bytes * (p.tied ? 0 : p.offset);
}

void ModelState::load_weights(const model::ModelFolder& folder, ThreadPool* pool) {
  std::set<std::string, std::less<>> known;
  for (int u = 0; u < static_cast<int>(graph_.units.size()); ++u) {
    const auto& params = graph_.units[static_cast<size_t>(u)].params;
    for (int p = 0; p < static_cast<int>(params.size()); ++p) {
      const graph::Parameter& parameter = params[static_cast<size_t>(p)];
      if (parameter.tied) continue;
      known.insert(parameter.name);
      const model::TensorEntry& tensor = folder.at(parameter.name);
      if (tensor.shape != parameter.shape) {
        throw InputError("{}: tensor '{}' is {}, config.json asks for {}. Weights and config.json belong to different models: "
                         "get both again.",
                         tensor.file->where(), tensor.name, model::format_shape(tensor.shape), model::format_shape(parameter.shape));
      }
      const optim::AdamWArrays to = arrays(u, p);
      const auto n = static_cast<size_t>(parameter.elements);
      model::read_as_master(tensor, std::span(to.hi, n), std::span(to.lo, n), 0, pool);
      tensor.file->drop(tensor);
    }
  }
  folder.check_unchanged();
  warn_unknown(folder, known, graph_.tied);
}

void ModelState::initialize(uint64_t seed, ThreadPool* pool) {
  std::vector<float> piece(static_cast<size_t>(kInitPiece));
  for (int u = 0; u < static_cast<int>(graph_.units.size()); ++u) {
    const auto& params = graph_.units[static_cast<size_t>(u)].params;
    for (int p = 0; p < static_cast<int>(params.size()); ++p) {
      const graph::Parameter& parameter = params[static_cast<size_t>(p)];
      if (parameter.tied) continue;
      const optim::AdamWArrays to = arrays(u, p);
      for (int64_t first = 0; first < parameter.elements; first += kInitPiece) {
        const int64_t count = std::min(kInitPiece, parameter.elements - first);
        model::fill_initial(parameter, graph_.initializer_range, seed, std::span(piece).first(static_cast<size_t>(count)), first, pool);
        for (int64_t i = 0; i < count; ++i) {
          const SplitMaster split = split_master(piece[static_cast<size_t>(i)]);
          to.hi[first + i] = split.hi;
          to.lo[first + i] = split.lo;
        }
      }
    }
  }
}

}  // namespace lazytrain::runtime
