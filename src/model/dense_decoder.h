// The decoder that Qwen2 and Llama share: pre-norm, rotary grouped-query attention, SwiGLU.
#pragma once

#include <cstdint>
#include <string>

#include "graph/graph.h"
#include "model/config.h"

namespace lazytrain::model {

inline constexpr int64_t kMaxPositions = int64_t{1} << 28;

// Tensor names and shapes are those of Qwen2ForCausalLM and LlamaForCausalLM; which maps have a bias is in the config.
graph::Graph build_dense_decoder(const ModelConfig& config, const std::string& family);

}  // namespace lazytrain::model
