// The weights of a ModelState as kernels read them outside the executor.
#pragma once

#include "base/tensor_view.h"
#include "base/thread_pool.h"
#include "runtime/arena.h"
#include "runtime/model_state.h"

namespace lazytrain::runtime {

// bf16: the stored halves in place. fp32: both halves merged into a buffer the size of the largest unit; a view is
// valid until the first one of another unit is asked for, as WeightViews needs it.
class MasterWeights {
 public:
  MasterWeights(const ModelState& state, DType compute, ThreadPool& pool);

  static int64_t bytes_needed(const graph::Graph& graph, DType compute);
  TensorView view(int unit, int parameter);

 private:
  const ModelState& state_;
  DType compute_;
  ThreadPool& pool_;
  Arena merged_;
};

}  // namespace lazytrain::runtime
