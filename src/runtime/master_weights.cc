#include "runtime/master_weights.h"

#include <algorithm>

#include "runtime/unit_runner.h"

namespace lazytrain::runtime {
namespace {

constexpr int64_t kMergeGrain = 1 << 16;  // elements a thread at least

}  // namespace

MasterWeights::MasterWeights(const ModelState& state, DType compute, ThreadPool& pool)
    : state_(state),
      compute_(compute),
      pool_(pool),
      in_place_(compute == DType::kBF16 && state.in_place(StateArray::kHi)),
      unit_(bytes_needed(state.graph(), compute, in_place_), "weights of one unit") {}

int64_t MasterWeights::bytes_needed(const graph::Graph& graph, DType compute, bool in_place) {
  if (compute == DType::kBF16 && in_place) return 0;
  int64_t most = 0;
  for (const graph::Unit& unit : graph.units) {
    int64_t elements = unit.block_elements;
    for (const graph::Parameter& p : unit.params) elements += p.tied ? p.elements : 0;
    most = std::max(most, elements);
  }
  return most * size_of(compute);
}

TensorView MasterWeights::view(int unit, int parameter) {
  const graph::Unit& u = state_.graph().units[static_cast<size_t>(unit)];
  const graph::Parameter& p = u.params[static_cast<size_t>(parameter)];
  if (in_place_) return parameter_view(p, state_.in_place(unit, parameter, StateArray::kHi), compute_);
  // The tied matrix, of which a unit has at most one, stands behind the unit's own block.
  std::byte* to = unit_.at((p.tied ? u.block_elements : p.offset) * size_of(compute_));
  if (compute_ == DType::kBF16) {
    state_.read(unit, parameter, StateArray::kHi, 0, {to, static_cast<size_t>(p.elements * size_of(compute_))});
    return parameter_view(p, to, compute_);
  }
  auto* weights = reinterpret_cast<float*>(to);
  state_.visit_weights(unit, parameter, [&](int64_t first, std::span<const bf16> hi, std::span<const int16_t> lo) {
    pool_.parallel_for(std::ssize(hi), kMergeGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<size_t>(i);
        weights[first + i] = merge_master({hi[at], lo[at]});
      }
    });
  });
  return parameter_view(p, weights, compute_);
}

}  // namespace lazytrain::runtime
