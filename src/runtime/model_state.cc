#include "runtime/model_state.h"

#include <algorithm>
#include <span>
#include <vector>

#include "model/init.h"
#include "model/parameter_tensors.h"
#include "model/tensor_convert.h"

namespace lazytrain::runtime {
namespace {

constexpr int64_t kInitPiece = int64_t{1} << 20;  // elements drawn at a time

}  // namespace

ModelState::ModelState(const graph::Graph& graph, DType compute)
    : graph_(graph),
      layout_(plan::state_layout(graph, compute)),
      arena_(layout_.bytes, "weights and optimizer state") {}

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
  for (int u = 0; u < static_cast<int>(graph_.units.size()); ++u) {
    const auto& params = graph_.units[static_cast<size_t>(u)].params;
    for (int p = 0; p < static_cast<int>(params.size()); ++p) {
      const graph::Parameter& parameter = params[static_cast<size_t>(p)];
      if (parameter.tied) continue;
      const model::TensorEntry& tensor = model::tensor_of(parameter, folder);
      const optim::AdamWArrays to = arrays(u, p);
      const auto n = static_cast<size_t>(parameter.elements);
      model::read_as_master(tensor, std::span(to.hi, n), std::span(to.lo, n), 0, pool);
      tensor.file->drop(tensor);
    }
  }
  folder.check_unchanged();
  model::warn_unread(graph_, folder);
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
        model::fill_initial(parameter, graph_.initializer_range, seed,
                            std::span(piece).first(static_cast<size_t>(count)), first, pool);
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
