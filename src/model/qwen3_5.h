// Qwen3.5 and Qwen3.6, dense: the text decoder, gated delta nets with a layer of gated full attention in every few. It
// can be planned; its ops have no kernels.
#pragma once

#include "graph/graph.h"
#include "model/config.h"
#include "model/config_reader.h"

namespace lazytrain::model {

void read_qwen3_5(ConfigReader& reader, ModelConfig& config);
// Tensor names and shapes as reference: models, Qwen3.5 tensors; those of the vision tower and of the heads that
// predict further tokens are left out.
graph::Graph build_qwen3_5(const ModelConfig& config);

}  // namespace lazytrain::model
