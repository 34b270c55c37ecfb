#include "model/llama.h"

#include <fmt/format.h>

#include "model/dense_decoder.h"

namespace lazytrain::model {

void read_llama(ConfigReader& reader, ModelConfig& config) {
  config.kv_heads = reader.integer_or("num_key_value_heads", config.query_heads, 1, config.query_heads);
  config.max_positions = reader.integer_or("max_position_embeddings", 2048, 1, kMaxPositions);
  config.qkv_bias = config.output_bias = reader.boolean_or("attention_bias", false);
  config.mlp_bias = reader.boolean_or("mlp_bias", false);
  reader.require("pretraining_tp", 1, "linear maps cut into slices round differently; set it to 1");
  reader.require("rope_interleaved", false,
                 "rotary pairs side by side are not supported, only pairs half a head apart");
}

void read_mistral(ConfigReader& reader, ModelConfig& config) {
  config.kv_heads = reader.integer("num_key_value_heads", 1, config.query_heads);
  config.max_positions = reader.integer_or("max_position_embeddings", 131072, 1, kMaxPositions);
  // transformers takes 4096 when the key is missing; null says that there is no window.
  const bool absent = !config.raw.contains("sliding_window");
  const bool windowed = absent || reader.has("sliding_window");
  const int64_t window = windowed ? reader.integer_or("sliding_window", 4096, 1, INT64_MAX) : config.max_positions;
  if (window < config.max_positions) {
    reader.refuse("sliding_window",
                  fmt::format("attention would be limited to {} of {} positions{}, which LazyTrain does "
                              "not compute; use a model with \"sliding_window\": null",
                              window, config.max_positions, absent ? " (mistral's default)" : ""));
  }
}

graph::Graph build_llama(const ModelConfig& config) { return build_dense_decoder(config, "llama"); }

}  // namespace lazytrain::model
