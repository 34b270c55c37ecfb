// The memory of forward passes that keep nothing for a backward: evaluation and generation.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "graph/pass.h"
#include "runtime/arena.h"
#include "runtime/unit_runner.h"

namespace lazytrain::runtime {

// The most scratch that a kernel of the graph asks for on a pool of `threads`; the loss op only `with_loss`.
int64_t most_scratch_bytes(const graph::Graph& graph, const graph::Dims& max, int threads, bool with_loss);

// Two boundaries that units read and write in turn, one workspace and one scratch for all of them.
class ForwardMemory {
 public:
  // For calls of at most `max.tokens` tokens and `scratch_bytes` of scratch. Throws UsageError where an op has no CPU
  // kernel, RunError when the system refuses the memory.
  ForwardMemory(const graph::Graph& graph, const graph::Dims& max, int64_t scratch_bytes);

  // What the constructor would allocate.
  static int64_t bytes_needed(const graph::Graph& graph, const graph::Dims& max, int64_t scratch_bytes);

  int64_t bytes() const { return arena_.bytes(); }
  const graph::Pass& pass(int unit) const { return layout_.passes[static_cast<size_t>(unit)]; }
  std::span<std::byte> scratch() const;
  // The unit's buffers; parameters are left to the caller. A unit's input is the output of the one before it.
  UnitBinding binding(int unit) const;

 private:
  struct Layout {
    Layout(const graph::Graph& graph, const graph::Dims& max, int64_t scratch_bytes);
    std::vector<graph::Pass> passes;  // by unit
    std::array<int64_t, 2> boundary{};
    int64_t workspace = 0;
    int64_t scratch = 0;
    int64_t bytes = 0;
  };

  Layout layout_;
  Arena arena_;
};

}  // namespace lazytrain::runtime
