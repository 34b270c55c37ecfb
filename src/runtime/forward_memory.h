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

// Two boundaries that units read and write in turn, one workspace and one scratch for all of them.
class ForwardMemory {
 public:
  // For calls of at most `max.tokens` tokens whose kernels run on a pool of `threads`. Throws UsageError where an op
  // has no CPU kernel, RunError when the system refuses the memory.
  ForwardMemory(const graph::Graph& graph, const graph::Dims& max, int threads);

  // What the constructor would allocate.
  static int64_t bytes_needed(const graph::Graph& graph, const graph::Dims& max, int threads);

  int64_t bytes() const { return arena_.bytes(); }
  const graph::Pass& pass(int unit) const { return layout_.passes[static_cast<size_t>(unit)]; }
  std::span<std::byte> scratch() const;
  // The unit's buffers; parameters are left to the caller. A unit's input is the output of the one before it.
  UnitBinding binding(int unit) const;

 private:
  struct Layout {
    Layout(const graph::Graph& graph, const graph::Dims& max, int threads);
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
