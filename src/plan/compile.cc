#include <fmt/format.h>

#include "base/arith.h"
#include "plan/compiler.h"
#include "plan/placement.h"
#include "plan/program.h"

namespace lazytrain::plan {
namespace {

int64_t bytes_of(const Program& program, const Instruction& instruction, Role role) {
  int64_t bytes = 0;
  for (const Use& use : instruction.uses) {
    if (use.role == role) bytes += program.buffers[static_cast<size_t>(use.buffer)].bytes;
  }
  return bytes;
}

}  // namespace

int64_t transfer_bytes(const Program& program, const Instruction& instruction) {
  switch (instruction.action) {
    case Action::kCopyIn:
      return bytes_of(program, instruction, Role::kOutput);
    case Action::kDiskRead:
      return bytes_of(program, instruction, Role::kSource);
    case Action::kCopyOut:
    case Action::kFetch:
    case Action::kDiskWrite:
      return bytes_of(program, instruction, Role::kTarget);
    case Action::kCompute:
    case Action::kAccumulate:
    case Action::kUpdate:
      return 0;
  }
  return 0;
}

StateLayout state_layout(const graph::Graph& graph, DType compute, std::string_view optimizer_state) {
  StateLayout layout;
  layout.gradient_bytes = size_of(compute);
  const auto take = [&](int64_t bytes) {
    const int64_t offset = layout.bytes;
    layout.bytes += align_up(bytes, kDiskAlignment);
    return offset;
  };
  const std::vector<int64_t> moments = optimizer_bytes(graph, optimizer_state);
  for (size_t u = 0; u < graph.units.size(); ++u) {
    UnitStateLayout state;
    state.elements = graph.units[u].block_elements;
    state.weights = take(4 * state.elements);
    state.optimizer = take(moments[u]);
    state.gradients = take(layout.gradient_bytes * state.elements);
    layout.units.push_back(state);
  }
  return layout;
}

std::string label(const Program& program, const graph::Graph& graph, int instruction) {
  const Instruction& i = program.instructions.at(static_cast<size_t>(instruction));
  const std::string& unit = graph.units.at(static_cast<size_t>(i.unit)).name;
  if (i.action != Action::kCompute) {
    for (const Use& use : i.uses) {
      if (use.role != Role::kSource) continue;
      return fmt::format("{} {} {}", unit, name_of(program.buffers[static_cast<size_t>(use.buffer)].purpose),
                         name_of(i.action));
    }
    return fmt::format("{} {}", unit, name_of(i.action));
  }
  return program.micro_batches > 1 ? fmt::format("{} {} {}", unit, name_of(i.pass), i.micro)
                                   : fmt::format("{} {}", unit, name_of(i.pass));
}

Program compile(const graph::Graph& graph, const Policy& policy, const CompileOptions& options) {
  check_against(policy, graph);
  return Compiler(graph, policy, options).run();
}

}  // namespace lazytrain::plan
