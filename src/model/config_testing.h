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

// Qwen3.5's decoder, flat, as its text model is saved on its own: a layer of full attention after three DeltaNets.
inline Json qwen3_5_text_json() {
  return parse_json(R"({"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_size": 32,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 48,
    "vocab_size": 300, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "attn_output_gate": true,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
    "partial_rotary_factor": 0.25, "mrope_interleaved": true, "mrope_section": [1, 1, 0]}, "dtype": "bfloat16"})",
                    "qwen3_5_text.json");
}

// The same inside the multimodal model's file.
inline Json qwen3_5_json() {
  Json json = parse_json(R"({"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",
    "image_token_id": 290, "video_token_id": 291, "vision_start_token_id": 292, "vision_end_token_id": 293,
    "tie_word_embeddings": false, "vision_config": {"depth": 2, "hidden_size": 16}})",
                         "qwen3_5.json");
  json["text_config"] = qwen3_5_text_json();
  json["text_config"].erase("architectures");
  return json;
}

inline Json gpt_oss_json() {
  return parse_json(R"({"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 32,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 48,
    "vocab_size": 300, "max_position_embeddings": 1024, "num_local_experts": 6, "num_experts_per_tok": 2,
    "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"], "swiglu_limit": 7.0,
    "rope_theta": 150000.0, "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "truncate": false, "original_max_position_embeddings": 64}, "torch_dtype": "bfloat16"})",
                    "gpt_oss.json");
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
