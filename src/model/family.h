// The model families: how each reads its configuration and which graph it is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "model/config.h"
#include "model/config_reader.h"

namespace lazytrain::model {

// What the family's own `read` understands and the common reader refuses for all others.
struct FamilyReads {
  bool text_config = false;          // the language model's keys may stand in "text_config"
  bool layer_types = false;          // layers other than full attention
  bool experts = false;              // a mixture of experts
  double partial_rotary_factor = 0;  // where the file does not say; 0: whole heads only
  bool yarn = false;                 // rope_type "yarn"
  int64_t head_dim = 0;              // where the file does not say; 0: hidden_size / num_attention_heads
};

struct Family {
  std::string_view model_type;    // of config.json
  std::string_view architecture;  // the transformers class of the causal language model
  // Fills in what the common reader cannot know: the family's defaults, its own keys and refusals.
  void (*read)(ConfigReader& reader, ModelConfig& config);
  graph::Graph (*build)(const ModelConfig& config);
  FamilyReads reads = {};
};

// Null when there is none.
const Family* find_family(std::string_view model_type);
// UsageError naming the known types and the nearest one when there is none.
const Family& family_of(std::string_view model_type, std::string_view where);

// Embedding, layers, head of the configured model, every parameter under its name in the model's files.
graph::Graph build_graph(const ModelConfig& config);

}  // namespace lazytrain::model
