// What the families around their layers have in common: embedding, head, and the graph that holds them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "graph/graph.h"
#include "model/config.h"

namespace lazytrain::model {

// Embedding under `prefix` ("model."), `layer(i)` for each layer, head: `norm`, then logits and loss with lm_head or,
// when tied, the embedding's matrix.
graph::Graph build_decoder(const ModelConfig& config, const std::string& family, const std::string& prefix,
                           const std::shared_ptr<const graph::OpKind>& norm,
                           const std::function<graph::Unit(int64_t)>& layer);

}  // namespace lazytrain::model
