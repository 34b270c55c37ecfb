// The loss of a model by forward passes alone.
#pragma once

#include <functional>

#include "base/thread_pool.h"
#include "ops/op.h"
#include "runtime/forward_memory.h"

namespace lazytrain::runtime {

// A parameter as the kernels read it: parameter_view() in the compute dtype. Asked for just before a unit runs; the
// view must stay valid until the first one of the next unit is asked for. A tied parameter is asked for like any other.
using WeightViews = std::function<TensorView(int unit, int parameter)>;

class ForwardLoss {
 public:
  // For batches of at most `max.tokens` tokens; graph and pool outlive this. `compute` is the dtype of activations and
  // weights and decides max.activation_bytes. Errors: see ForwardMemory.
  ForwardLoss(const graph::Graph& graph, graph::Dims max, DType compute, ThreadPool& pool);

  // What the constructor would allocate.
  static int64_t bytes_needed(const graph::Graph& graph, graph::Dims max, DType compute, int threads);
  int64_t bytes() const { return memory_.bytes(); }
  int64_t max_tokens() const { return max_tokens_; }

  // Sum of the loss over the counted targets. Every id must be inside the vocabulary.
  ops::LossSum run(const ops::Tokens& tokens, const WeightViews& weights);

 private:
  const graph::Graph& graph_;
  int64_t max_tokens_;
  DType compute_;
  ThreadPool& pool_;
  ForwardMemory memory_;
};

}  // namespace lazytrain::runtime
