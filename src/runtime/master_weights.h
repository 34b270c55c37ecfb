// The weights of a ModelState as kernels read them outside the executor.
#pragma once

#include "base/tensor_view.h"
#include "base/thread_pool.h"
#include "runtime/arena.h"
#include "runtime/model_state.h"

namespace lazytrain::runtime {

// bf16: the stored halves, in place where all of them lie in memory. Else, and with fp32 always, a copy (fp32: of both
// halves, merged) in a buffer the size of the largest unit: a view is valid until the first one of another unit is
// asked for, as WeightViews needs it.
class MasterWeights {
 public:
  MasterWeights(const ModelState& state, DType compute, ThreadPool& pool);

  // What the constructor would allocate. `in_place`: ModelState::in_place of the hi halves.
  static int64_t bytes_needed(const graph::Graph& graph, DType compute, bool in_place);
  TensorView view(int unit, int parameter);

 private:
  const ModelState& state_;
  DType compute_;
  ThreadPool& pool_;
  bool in_place_;
  Arena unit_;
};

}  // namespace lazytrain::runtime
