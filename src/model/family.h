// The model families: how each reads its configuration and which graph it is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "model/config.h"
#include "model/config_reader.h"

namespace lazytrain::model {

struct Family {
  std::string_view model_type;    // of config.json
  std::string_view architecture;  // the transformers class of the causal language model
  // Fills in what the common reader cannot know: the family's defaults, its own keys and refusals.
  void (*read)(ConfigReader& reader, ModelConfig& config);
  graph::Graph (*build)(const ModelConfig& config);
};

// UsageError naming the known types and the nearest one when there is none.
const Family& family_of(std::string_view model_type, std::string_view where);

// Embedding, layers, head of the configured model, every parameter under its name in the model's files.
graph::Graph build_graph(const ModelConfig& config);

}  // namespace lazytrain::model
