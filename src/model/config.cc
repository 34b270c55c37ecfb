#include "model/config.h"

#include <fmt/ranges.h>

#include <array>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "model/config_reader.h"
#include "model/family.h"

namespace lazytrain::model {
namespace {

// Sizes beyond every real model, small enough that no product of shapes leaves int64_t.
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxIntermediate = int64_t{1} << 22;
constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;

// Keys that transformers and its companions write and that change neither the maths nor the shapes of training.
const std::set<std::string_view>& harmless_keys() {
  static const std::set<std::string_view> keys = {"_attn_implementation",
                                                  "_attn_implementation_autoset",
                                                  "_name_or_path",
                                                  "architectures",
                                                  "attn_implementation",
                                                  "bad_words_ids",
                                                  "begin_suppress_tokens",
                                                  "bos_token_id",
                                                  "chunk_size_feed_forward",
                                                  "cross_attention_hidden_size",
                                                  "decoder_start_token_id",
                                                  "diversity_penalty",
                                                  "do_sample",
                                                  "early_stopping",
                                                  "encoder_no_repeat_ngram_size",
                                                  "eos_token_id",
                                                  "exponential_decay_length_penalty",
                                                  "finetuning_task",
                                                  "forced_bos_token_id",
                                                  "forced_eos_token_id",
                                                  "id2label",
                                                  "is_decoder",
                                                  "is_llama_config",
                                                  "keys_to_ignore_at_inference",
                                                  "label2id",
                                                  "length_penalty",
                                                  "max_length",
                                                  "max_new_tokens",
                                                  "min_length",
                                                  "model_type",
                                                  "no_repeat_ngram_size",
                                                  "num_beam_groups",
                                                  "num_beams",
                                                  "num_return_sequences",
                                                  "output_attentions",
                                                  "output_hidden_states",
                                                  "output_scores",
                                                  "pad_token_id",
                                                  "prefix",
                                                  "problem_type",
                                                  "pruned_heads",
                                                  "remove_invalid_values",
                                                  "repetition_penalty",
                                                  "return_dict",
                                                  "return_dict_in_generate",
                                                  "sep_token_id",
                                                  "suppress_tokens",
                                                  "task_specific_params",
                                                  "temperature",
                                                  "tf_legacy_loss",
                                                  "tie_encoder_decoder",
                                                  "tokenizer_class",
                                                  "top_k",
                                                  "top_p",
                                                  "torchscript",
                                                  "transformers.js_config",
                                                  "transformers_version",
                                                  "typical_p",
                                                  "unk_token_id",
                                                  "unsloth_fixed",
                                                  "unsloth_version",
                                                  "use_bfloat16",
                                                  "use_cache"};
  return keys;
}

// What is refused for every family: the key, the value that means "not used", and why.
struct Refusal {
  std::string_view key;
  Json accepted;
  std::string_view reason;
};

void refuse_what_we_cannot_compute(ConfigReader& reader) {
  constexpr std::string_view kExperts = "mixtures of experts are not supported; use a dense model";
  constexpr std::string_view kQuantized = "quantised weights cannot be trained; use the model in bf16 or fp32";
  constexpr std::string_view kDecoderOnly = "only decoder-only models are supported";
  constexpr std::string_view kMrope = "multimodal rotary positions are not supported; use a text model";
  const std::array refusals = {
      Refusal{"quantization_config", nullptr, kQuantized},
      Refusal{"compression_config", nullptr, kQuantized},
      Refusal{"num_local_experts", 0, kExperts},
      Refusal{"num_experts", 0, kExperts},
      Refusal{"n_routed_experts", 0, kExperts},
      Refusal{"num_experts_per_tok", 0, kExperts},
      Refusal{"moe_intermediate_size", 0, kExperts},
      Refusal{"is_encoder_decoder", false, kDecoderOnly},
      Refusal{"add_cross_attention", false, kDecoderOnly},
      Refusal{"attention_dropout", 0, "LazyTrain trains without dropout; set it to 0.0 if that is meant"},
      Refusal{"partial_rotary_factor", 1, "only rotary embeddings over whole heads are supported"},
      Refusal{"mrope_section", nullptr, kMrope},
  };
  for (const auto& refusal : refusals) reader.require(refusal.key, refusal.accepted, refusal.reason);
  const std::string act = reader.string_or("hidden_act", "silu");
  if (act != "silu" && act != "swish") reader.refuse("hidden_act", "the MLP's activation must be \"silu\"");
}

void refuse_multimodal(ConfigReader& reader) {
  for (const char* key :
       {"text_config", "vision_config", "audio_config", "llm_config", "language_config", "thinker_config"}) {
    if (!reader.has(key)) continue;
    throw UsageError(
        "{}: this is the configuration of a multimodal model (it has \"{}\"); LazyTrain trains text decoders: save the "
        "language model on its own (in transformers: the text model's save_pretrained) and use that folder",
        reader.where(), key);
  }
}

void check_dtype(ConfigReader& reader) {
  constexpr std::string_view kPrefix = "torch.";
  for (const char* key : {"dtype", "torch_dtype"}) {
    std::string name = reader.string_or(key, "bfloat16");
    if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
    if (name != "bfloat16" && name != "float16" && name != "float32" && name != "auto") {
      reader.refuse(key, "weights must be bfloat16, float16 or float32");
    }
  }
}

void check_layer_types(ConfigReader& reader, const ModelConfig& config) {
  if (!reader.has("layer_types")) return;
  const Json& types = reader.value("layer_types");
  if (!types.is_array() || static_cast<int64_t>(types.size()) != config.layers) {
    throw InputError("{}: \"layer_types\" is {}, expected a list of {} names, one a layer (num_hidden_layers)",
                     reader.where(), shown(types.dump(), 80), config.layers);
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != "full_attention") {
      throw UsageError("{}: \"layer_types\" has {} at layer {}: only \"full_attention\" is supported", reader.where(),
                       shown(types[i].dump(), 80), i);
    }
  }
}

// Reads one of the two spellings of a rotary embedding ("rope_scaling", "rope_parameters") but its theta.
RopeConfig read_rope_object(ConfigReader& rope) {
  const std::string type = rope.string_or("rope_type", rope.string_or("type", "default"));
  if (rope.string_or("type", type) != type) rope.refuse("type", "contradicts \"rope_type\"; remove one of them");
  rope.require("partial_rotary_factor", 1, "only rotary embeddings over whole heads are supported");
  rope.require("mrope_section", nullptr, "multimodal rotary positions are not supported; use a text model");
  rope.require("attention_factor", 1, "only 1.0 is supported");
  RopeConfig config;
  if (type == "default") {
    if (!rope.has("type") && !rope.has("rope_type") && rope.has("factor")) {
      rope.refuse("factor", "scales an embedding whose \"rope_type\" is not given");
    }
    return config;
  }
  if (type != "llama3") {
    rope.refuse(
        rope.has("rope_type") ? "rope_type" : "type",
        "this scaling of the rotary embedding is not supported; known are \"default\" and, for the llama family, "
        "\"llama3\"");
  }
  config.type = RopeType::kLlama3;
  config.factor = rope.number("factor", 1, 1e6);
  config.low_frequency = rope.number("low_freq_factor", 1e-6, 1e6);
  config.high_frequency = rope.number("high_freq_factor", 1e-6, 1e6);
  config.original_positions = rope.integer("original_max_position_embeddings", 1, int64_t{1} << 28);
  if (config.high_frequency <= config.low_frequency)
    rope.refuse("high_freq_factor", "must be greater than low_freq_factor");
  return config;
}

RopeConfig read_rope(ConfigReader& reader, std::vector<std::string>& warnings) {
  constexpr double kSmallestTheta = 1;
  constexpr double kLargestTheta = 1e15;
  std::optional<double> theta;
  std::optional<RopeConfig> rope;
  const auto agree_on_theta = [&](ConfigReader& from) {
    if (!from.has("rope_theta")) return;
    const double found = from.number("rope_theta", kSmallestTheta, kLargestTheta);
    if (theta.has_value() && *theta != found) {
      from.refuse("rope_theta", fmt::format("another place of the same file says {}; remove the wrong one", *theta));
    }
    theta = found;
  };
  agree_on_theta(reader);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!reader.has(key)) continue;
    ConfigReader object = reader.object(key);
    for (const auto& entry : reader.value(key)) {
      if (entry.is_object()) reader.refuse(key, "rotary embeddings that differ between layers are not supported");
    }
    agree_on_theta(object);
    const RopeConfig found = read_rope_object(object);
    if (rope.has_value() && *rope != found) reader.refuse(key, "contradicts \"rope_scaling\"; remove the wrong one");
    rope = found;
    for (const auto& unread : object.unread({})) warnings.push_back(fmt::format("{}.{}", key, unread));
  }
  RopeConfig result = rope.value_or(RopeConfig{});
  result.theta = theta.value_or(10000);
  return result;
}

void read_shapes(ConfigReader& reader, ModelConfig& config) {
  config.hidden = reader.integer("hidden_size", 1, kMaxWidth);
  config.layers = reader.integer("num_hidden_layers", 1, kMaxLayers);
  config.query_heads = reader.integer("num_attention_heads", 1, kMaxWidth);
  config.intermediate = reader.integer("intermediate_size", 1, kMaxIntermediate);
  config.vocabulary = reader.integer("vocab_size", 1, kMaxVocabulary);
  if (reader.has("head_dim")) {
    config.head_dim = reader.integer("head_dim", 2, kMaxWidth);
  } else {
    if (config.hidden % config.query_heads != 0) {
      reader.refuse("num_attention_heads",
                    fmt::format("does not divide hidden_size {}, and there is no \"head_dim\"", config.hidden));
    }
    config.head_dim = config.hidden / config.query_heads;
  }
  if (config.head_dim % 2 != 0) {
    throw UsageError("{}: the head dimension {} is odd; rotary embedding turns pairs of dimensions", reader.where(),
                     config.head_dim);
  }
  if (config.query_width() > kMaxWidth) {
    throw InputError("{}: {} heads of {} dimensions are wider than {}", reader.where(), config.query_heads,
                     config.head_dim, kMaxWidth);
  }
}

void warn_of_architecture(ConfigReader& reader, const Family& family, std::vector<std::string>& warnings) {
  if (!reader.has("architectures")) return;
  const Json& names = reader.value("architectures");
  if (names == Json::array() || (names.is_array() && names.front().is_string() &&
                                 names.front().get_ref<const std::string&>().ends_with("ForCausalLM"))) {
    return;
  }
  warnings.push_back(fmt::format("{}: \"architectures\" is {}; it is read as {}", reader.where(),
                                 shown(names.dump(), 80), family.architecture));
}

}  // namespace

ModelConfig parse_config(Json object, const std::string& where) {
  ModelConfig config;
  config.raw = std::move(object);
  ConfigReader reader(JsonObject(config.raw, where));
  refuse_multimodal(reader);
  config.model_type = reader.string("model_type");
  const Family& family = family_of(config.model_type, where);

  read_shapes(reader, config);
  config.rms_norm_eps = reader.number_or("rms_norm_eps", 1e-6, 1e-30, 1);
  config.initializer_range = reader.number_or("initializer_range", 0.02, 0, 1);
  config.tied = reader.boolean_or("tie_word_embeddings", false);
  std::vector<std::string> unknown;
  config.rope = read_rope(reader, unknown);
  refuse_what_we_cannot_compute(reader);
  check_dtype(reader);
  check_layer_types(reader, config);
  family.read(reader, config);
  if (config.query_heads % config.kv_heads != 0) {
    reader.refuse("num_key_value_heads", fmt::format("does not divide num_attention_heads {}", config.query_heads));
  }

  warn_of_architecture(reader, family, config.warnings);
  for (const auto& key : reader.unread(harmless_keys())) unknown.push_back(key);
  for (const auto& key : unknown) {
    config.warnings.push_back(
        fmt::format("{}: the key \"{}\" is not known and has no effect; if it changes what the model computes, results "
                    "will be wrong",
                    where, shown(key)));
  }
  return config;
}

ModelConfig load_config(const std::filesystem::path& folder_or_file) {
  const bool folder = std::filesystem::is_directory(folder_or_file);
  const auto file = folder ? folder_or_file / "config.json" : folder_or_file;
  if (!std::filesystem::exists(file)) {
    throw UsageError("{}: no such {}; expected a Hugging Face model folder or its config.json", file.string(),
                     folder ? "file" : "file or folder");
  }
  ModelConfig config = parse_config(read_json(file, kMaxConfigBytes), file.string());
  for (const auto& warning : config.warnings) spdlog::warn("{}", warning);
  return config;
}

std::string fingerprint(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  // mistral without its window is llama: the type stands here only for what it changes, which the other fields say.
  std::string text = fmt::format(
      "dense_decoder hidden={} layers={} query_heads={} kv_heads={} head_dim={} intermediate={} vocabulary={} eps={} "
      "theta={} qkv_bias={} output_bias={} mlp_bias={} tied={}",
      config.hidden, config.layers, config.query_heads, config.kv_heads, config.head_dim, config.intermediate,
      config.vocabulary, config.rms_norm_eps, rope.theta, config.qkv_bias, config.output_bias, config.mlp_bias,
      config.tied);
  if (rope.type == RopeType::kLlama3) {
    text += fmt::format(" llama3={},{},{},{}", rope.factor, rope.low_frequency, rope.high_frequency,
                        rope.original_positions);
  }
  return hash_hex(text);
}

Json saved_config(const ModelConfig& config, DType dtype) {
  if (dtype != DType::kBF16 && dtype != DType::kF32) {
    throw UsageError("weights are saved as BF16 or F32, not {}", name_of(dtype));
  }
  const std::string type = dtype == DType::kBF16 ? "bfloat16" : "float32";
  Json saved = config.raw;
  if (!saved.contains("architectures") || saved["architectures"].empty()) {
    saved["architectures"] = Json::array({family_of(config.model_type, "model").architecture});
  }
  // Older transformers know only torch_dtype, rope_theta and rope_scaling; current ones read both spellings.
  saved["torch_dtype"] = type;
  if (saved.contains("dtype")) saved["dtype"] = type;
  saved["rope_theta"] = config.rope.theta;
  Json scaling;
  if (config.rope.type == RopeType::kLlama3) {
    scaling = {{"rope_type", "llama3"},
               {"factor", config.rope.factor},
               {"low_freq_factor", config.rope.low_frequency},
               {"high_freq_factor", config.rope.high_frequency},
               {"original_max_position_embeddings", config.rope.original_positions}};
  }
  saved["rope_scaling"] = std::move(scaling);
  return saved;
}

}  // namespace lazytrain::model
