// Configurations for the tests of this room.
#pragma once

#include <string>

#include "model/config.h"

namespace lazytrain::model::testing {

inline Json qwen2_json() {
  return parse_json(R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 56,
    "num_hidden_layers": 2, "num_attention_heads": 7, "num_key_value_heads": 1, "intermediate_size": 96,
    "vocab_size": 300, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "hidden_act": "silu", "tie_word_embeddings": true, "use_sliding_window": false, "sliding_window": 64,
    "max_window_layers": 1, "torch_dtype": "bfloat16"})",
                    "qwen2.json");
}

inline Json llama_json() {
  return parse_json(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96,
    "vocab_size": 300, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "attention_bias": false, "mlp_bias": false, "torch_dtype": "bfloat16"})",
                    "llama.json");
}

inline Json mistral_json() {
  Json json = llama_json();
  json["model_type"] = "mistral";
  json["sliding_window"] = nullptr;
  json.erase("attention_bias");
  json.erase("mlp_bias");
  return json;
}

// `base` with one key replaced; `value` is JSON text.
inline Json with(Json base, const std::string& key, const std::string& value) {
  base[key] = parse_json(value, "value");
  return base;
}

inline Json without(Json base, const std::string& key) {
  base.erase(key);
  return base;
}

}  // namespace lazytrain::model::testing
