// GPT-OSS: attention with sinks, full and windowed in turn, and a mixture of experts. It can be planned, as weights in
// 16 bits; its ops have no kernels.
#pragma once

#include "graph/graph.h"
#include "model/config.h"
#include "model/config_reader.h"

namespace lazytrain::model {

void read_gpt_oss(ConfigReader& reader, ModelConfig& config);
// Tensor names and shapes are those of GptOssForCausalLM.
graph::Graph build_gpt_oss(const ModelConfig& config);

}  // namespace lazytrain::model
