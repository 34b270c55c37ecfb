// What outlives a step: split master weights, optimizer moments and stored gradients of every unit, each unit's in
// one contiguous block a purpose (plan::state_layout).
#pragma once

#include <cstdint>
#include <string>

#include "base/thread_pool.h"
#include "graph/graph.h"
#include "model/checkpoint_reader.h"
#include "optim/adamw.h"
#include "plan/program.h"
#include "runtime/arena.h"

namespace lazytrain::runtime {

class ModelState {
 public:
  // All zero. `compute` decides how gradients are stored (bf16 or fp32).
  ModelState(const graph::Graph& graph, DType compute);

  // The weights from a model folder. Throws InputError naming the tensor that is missing or has another shape, with the
  // shape that config.json asks for; logs the tensors that the model does not know.
  void load_weights(const model::ModelFolder& folder, ThreadPool* pool);
  // Seeded random weights.
  void initialize(uint64_t seed, ThreadPool* pool);

  const graph::Graph& graph() const { return graph_; }
  DType gradient_dtype() const { return layout_.gradient_bytes == 2 ? DType::kBF16 : DType::kF32; }
  // The arrays of one parameter, n = Parameter::elements. A tied parameter's are the embedding's.
  optim::AdamWArrays arrays(int unit, int parameter) const;
  std::byte* gradient(int unit, int parameter) const;
  // Base of the whole state: buffers marked `state` in a Program lie at their offsets from here.
  std::byte* base() const { return arena_.at(0); }
  int64_t bytes() const { return arena_.bytes(); }

 private:
  const graph::Graph& graph_;
  plan::StateLayout layout_;
  Arena arena_;
};

}  // namespace lazytrain::runtime
