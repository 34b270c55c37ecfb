// A model's configuration: what its config.json says, checked, with everything refused that we would compute wrongly.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "model/rope.h"

namespace lazytrain::model {

// The linear-attention layers of a hybrid model (Qwen3.5).
struct DeltaNetConfig {
  int64_t key_heads = 0;
  int64_t value_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t conv_taps = 0;
};

// A mixture of experts in the place of the MLP (GPT-OSS).
struct ExpertsConfig {
  int64_t experts = 0;
  int64_t chosen = 0;  // a token
};

// How one layer mixes tokens.
enum class LayerType : uint8_t { kFullAttention, kSlidingAttention, kLinearAttention };

struct ModelConfig {
  std::string model_type;  // as in the file: "qwen2", "llama", "mistral", "qwen3_5", "qwen3_5_text", "gpt_oss"
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t query_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate = 0;
  int64_t vocabulary = 0;
  int64_t max_positions = 0;
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  RopeConfig rope;
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool tied = false;                        // the head's matrix is the embedding's
  int64_t sliding_window = 0;               // tokens a kSlidingAttention layer looks back over, itself included
  std::vector<LayerType> layer_types;       // one a layer; empty: full attention throughout
  std::optional<DeltaNetConfig> delta_net;  // of kLinearAttention layers
  std::optional<ExpertsConfig> experts;
  bool nested = false;  // the text model's keys stand in the file's "text_config"

  Json raw;                           // the file's object, for saved_config()
  std::vector<std::string> warnings;  // keys that were not understood, each named

  int64_t query_width() const { return query_heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
};

// Reads a configuration as older and current transformers write it. `where` is the file's name for messages.
// Throws UsageError, naming the key, for an unknown model_type and for everything whose maths LazyTrain does not have
// (scaled rotary embeddings other than llama3, sliding windows, dropout, experts, quantised or multimodal models, ...);
// InputError for a missing key, a wrong type or a number out of bounds. A key that is neither read nor known to be
// without effect is listed in `warnings`.
ModelConfig parse_config(Json object, const std::string& where);

// The same for a model folder's config.json or for the file itself; logs the warnings. UsageError when there is none.
ModelConfig load_config(const std::filesystem::path& folder_or_file);

// 32 hex digits over the fields that determine the maths and the shapes: equal for configurations that compute the same
// function of the same parameters, however they are spelled.
std::string fingerprint(const ModelConfig& config);

// config.json for weights saved as `dtype` (bf16 or fp32): the original object with dtype and rotary embedding spelled
// so that older and current transformers read them alike.
Json saved_config(const ModelConfig& config, DType dtype);

}  // namespace lazytrain::model
