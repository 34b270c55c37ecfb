#include "runtime/forward_memory.h"

#include <algorithm>

#include "base/arith.h"
#include "ops/op.h"

namespace lazytrain::runtime {
namespace {

constexpr int64_t kLine = 64;  // bytes

}  // namespace

int64_t most_scratch_bytes(const graph::Graph& graph, const graph::Dims& max, int threads, bool with_loss) {
  int64_t most = 0;
  for (const graph::Unit& unit : graph.units) {
    for (const graph::Op& op : unit.ops) {
      const auto* kernels = dynamic_cast<const ops::CpuOp*>(op.kind.get());
      if (kernels == nullptr || (op.kind->is_loss() && !with_loss)) continue;
      most = std::max(most, kernels->cpu_scratch_bytes(max, threads));
    }
  }
  return most;
}

ForwardMemory::Layout::Layout(const graph::Graph& graph, const graph::Dims& max, int64_t scratch_bytes) {
  int64_t boundary_bytes = 0;
  int64_t workspace_bytes = 0;
  for (const graph::Unit& unit : graph.units) {
    passes.push_back(graph::forward_pass(unit, {}, max));
    workspace_bytes = std::max(workspace_bytes, passes.back().workspace_bytes);
    if (unit.output >= 0) {
      boundary_bytes = std::max(boundary_bytes, graph::value_bytes(unit.values[static_cast<size_t>(unit.output)], max));
    }
  }
  boundary = {0, boundary_bytes};
  workspace = 2 * boundary_bytes;
  scratch = workspace + align_up(workspace_bytes, kLine);
  bytes = scratch + align_up(scratch_bytes, kLine);
}

ForwardMemory::ForwardMemory(const graph::Graph& graph, const graph::Dims& max, int64_t scratch_bytes)
    : layout_(graph, max, scratch_bytes), arena_(layout_.bytes, "activations of forward passes") {
  require_cpu_kernels(graph);
}

int64_t ForwardMemory::bytes_needed(const graph::Graph& graph, const graph::Dims& max, int64_t scratch_bytes) {
  return Layout(graph, max, scratch_bytes).bytes;
}

std::span<std::byte> ForwardMemory::scratch() const {
  return {arena_.at(layout_.scratch), static_cast<size_t>(layout_.bytes - layout_.scratch)};
}

UnitBinding ForwardMemory::binding(int unit) const {
  const auto parity = static_cast<size_t>(unit % 2);
  UnitBinding binding;
  binding.input = arena_.at(layout_.boundary[1 - parity]);
  binding.output = arena_.at(layout_.boundary[parity]);
  binding.workspace = arena_.at(layout_.workspace);
  return binding;
}

}  // namespace lazytrain::runtime
