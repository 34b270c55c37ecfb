// A model folder in memory for inference: its graph, and its weights in the compute dtype.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/tensor_view.h"
#include "base/thread_pool.h"
#include "graph/graph.h"
#include "model/config.h"
#include "runtime/arena.h"

namespace lazytrain::eval {

class InferenceModel {
 public:
  // Reads config.json and the weights. bf16 weights are the halves that training computes with, fp32 ones are exact.
  // Throws UsageError for a model that cannot be computed, InputError for missing or misshapen tensors, RunError when
  // the memory is not there.
  InferenceModel(const std::filesystem::path& folder, DType compute, ThreadPool& pool);
  InferenceModel(const InferenceModel&) = delete;
  InferenceModel& operator=(const InferenceModel&) = delete;

  const model::ModelConfig& config() const { return config_; }
  const graph::Graph& graph() const { return graph_; }
  DType compute() const { return compute_; }
  int64_t bytes() const { return arena_.bytes(); }
  // As runtime::parameter_view; a tied parameter is the embedding's matrix.
  TensorView weight(int unit, int parameter) const;
  // "FILE: tensor 'NAME': ..." of the first weights that are not finite; empty when all are.
  std::string describe_broken_weight() const;

 private:
  void read_weights(ThreadPool& pool);

  std::filesystem::path folder_;
  model::ModelConfig config_;
  graph::Graph graph_;
  DType compute_;
  std::vector<int64_t> unit_offsets_;  // elements
  runtime::Arena arena_;
};

// Throws RunError, naming `purpose` and `remedy`, when this process may not take `bytes` more.
void require_memory(int64_t bytes, const char* purpose, const char* remedy);

}  // namespace lazytrain::eval
