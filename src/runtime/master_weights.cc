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
      merged_(bytes_needed(state.graph(), compute), "fp32 weights of one unit") {}

int64_t MasterWeights::bytes_needed(const graph::Graph& graph, DType compute) {
  if (compute == DType::kBF16) return 0;
  int64_t most = 0;
  for (const graph::Unit& unit : graph.units) {
    int64_t elements = unit.block_elements;
    for (const graph::Parameter& p : unit.params) elements += p.tied ? p.elements : 0;
    most = std::max(most, elements);
  }
  return most * size_of(DType::kF32);
}

TensorView MasterWeights::view(int unit, int parameter) {
  const graph::Unit& u = state_.graph().units[static_cast<size_t>(unit)];
  const graph::Parameter& p = u.params[static_cast<size_t>(parameter)];
  const optim::AdamWArrays from = state_.arrays(unit, parameter);
  if (compute_ == DType::kBF16) return parameter_view(p, from.hi, compute_);
  // The tied matrix, of which a unit has at most one, stands behind the unit's own block.
  auto* to = reinterpret_cast<float*>(merged_.at(0)) + (p.tied ? u.block_elements : p.offset);
  pool_.parallel_for(p.elements, kMergeGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = merge_master({from.hi[i], from.lo[i]});
  });
  return parameter_view(p, to, DType::kF32);
}

}  // namespace lazytrain::runtime
