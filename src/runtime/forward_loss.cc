#include "runtime/forward_loss.h"

#include <stdexcept>

namespace lazytrain::runtime {
namespace {

graph::Dims with_dtype(graph::Dims dims, DType compute) {
  dims.activation_bytes = size_of(compute);
  return dims;
}

}  // namespace

ForwardLoss::ForwardLoss(const graph::Graph& graph, graph::Dims max, DType compute, ThreadPool& pool)
    : graph_(graph),
      max_tokens_(max.tokens),
      compute_(compute),
      pool_(pool),
      memory_(graph, with_dtype(max, compute),
              most_scratch_bytes(graph, with_dtype(max, compute), pool.threads(), true)) {}

int64_t ForwardLoss::bytes_needed(const graph::Graph& graph, graph::Dims max, DType compute, int threads) {
  const graph::Dims dims = with_dtype(max, compute);
  return ForwardMemory::bytes_needed(graph, dims, most_scratch_bytes(graph, dims, threads, true));
}

ops::LossSum ForwardLoss::run(const ops::Tokens& tokens, const WeightViews& weights) {
  if (tokens.count > max_tokens_) throw std::logic_error("more tokens than the forward passes have memory for");
  ops::LossSum loss;
  const ops::CpuContext context{
      .pool = &pool_, .activation = compute_, .tokens = &tokens, .scratch = memory_.scratch(), .loss = &loss};
  for (int u = 0; u < static_cast<int>(graph_.units.size()); ++u) {
    const graph::Unit& unit = graph_.units[static_cast<size_t>(u)];
    UnitBinding binding = memory_.binding(u);
    for (int p = 0; p < static_cast<int>(unit.params.size()); ++p) binding.params.push_back(weights(u, p));
    const graph::Pass& pass = memory_.pass(u);
    run_steps(unit, pass, 0, static_cast<int>(pass.steps.size()), binding, context, nullptr);
  }
  return loss;
}

}  // namespace lazytrain::runtime
