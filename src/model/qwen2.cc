#include "model/qwen2.h"

#include <fmt/format.h>

#include "model/dense_decoder.h"

namespace lazytrain::model {

void read_qwen2(ConfigReader& reader, ModelConfig& config) {
  config.kv_heads = reader.integer("num_key_value_heads", 1, config.query_heads);
  config.max_positions = reader.integer_or("max_position_embeddings", 32768, 1, kMaxPositions);
  config.qkv_bias = true;
  // Without use_sliding_window the two other keys have no effect; with it, layers from max_window_layers on are
  // windowed.
  const int64_t full_layers = reader.integer_or("max_window_layers", 28, 0, INT64_MAX);
  reader.has("sliding_window");
  if (reader.boolean_or("use_sliding_window", false) && full_layers < config.layers) {
    reader.refuse(
        "use_sliding_window",
        fmt::format("layers {} to {} would attend within a sliding window, which LazyTrain does not compute; use a "
                    "model with full attention",
                    full_layers, config.layers - 1));
  }
  reader.require("use_mrope", false, "multimodal rotary positions are not supported; use a text model");
  if (config.rope.type != RopeType::kDefault) {
    reader.refuse(reader.has("rope_scaling") ? "rope_scaling" : "rope_parameters",
                  "qwen2 models are supported with rope_type default only");
  }
}

graph::Graph build_qwen2(const ModelConfig& config) { return build_dense_decoder(config, "qwen2"); }

}  // namespace lazytrain::model
