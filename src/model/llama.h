// Llama 2 and 3, SmolLM2, and Mistral without its sliding window, which is the same decoder.
#pragma once

#include "graph/graph.h"
#include "model/config.h"
#include "model/config_reader.h"

namespace lazytrain::model {

void read_llama(ConfigReader& reader, ModelConfig& config);
void read_mistral(ConfigReader& reader, ModelConfig& config);
graph::Graph build_llama(const ModelConfig& config);

}  // namespace lazytrain::model
