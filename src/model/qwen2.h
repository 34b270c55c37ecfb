// Qwen2 and Qwen2.5: biases on q, k and v, optional sliding window (refused).
#pragma once

#include "graph/graph.h"
#include "model/config.h"
#include "model/config_reader.h"

namespace lazytrain::model {

void read_qwen2(ConfigReader& reader, ModelConfig& config);
graph::Graph build_qwen2(const ModelConfig& config);

}  // namespace lazytrain::model
