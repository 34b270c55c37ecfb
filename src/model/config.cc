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
#include "model/layer_types.h"
#include "model/rope_reader.h"

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

void refuse_what_we_cannot_compute(ConfigReader& reader, const FamilyReads& reads) {
  constexpr std::string_view kExperts = "mixtures of experts are not supported; use a dense model";
  constexpr std::string_view kQuantized = "quantised weights cannot be trained; use the model in bf16 or fp32";
  constexpr std::string_view kDecoderOnly = "only decoder-only models are supported";
  constexpr std::string_view kMrope = "multimodal rotary positions are not supported; use a text model";
  const std::array always = {
      Refusal{"quantization_config", nullptr, kQuantized},
      Refusal{"compression_config", nullptr, kQuantized},
      Refusal{"is_encoder_decoder", false, kDecoderOnly},
      Refusal{"add_cross_attention", false, kDecoderOnly},
      Refusal{"attention_dropout", 0, "LazyTrain trains without dropout; set it to 0.0 if that is meant"},
  };
  const std::array experts = {
      Refusal{"num_local_experts", 0, kExperts},     Refusal{"num_experts", 0, kExperts},
      Refusal{"n_routed_experts", 0, kExperts},      Refusal{"num_experts_per_tok", 0, kExperts},
      Refusal{"moe_intermediate_size", 0, kExperts},
  };
  const std::array partial_rotary = {
      Refusal{"partial_rotary_factor", 1, "only rotary embeddings over whole heads are supported"},
      Refusal{"mrope_section", nullptr, kMrope},
  };
  const auto refuse = [&reader](const auto& list) {
    for (const Refusal& refusal : list) reader.require(refusal.key, refusal.accepted, refusal.reason);
  };
  refuse(always);
  if (!reads.experts) refuse(experts);
  if (reads.partial_rotary_factor == 0) refuse(partial_rotary);
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

void read_shapes(ConfigReader& reader, const FamilyReads& reads, ModelConfig& config) {
  config.hidden = reader.integer("hidden_size", 1, kMaxWidth);
  config.layers = reader.integer("num_hidden_layers", 1, kMaxLayers);
  config.query_heads = reader.integer("num_attention_heads", 1, kMaxWidth);
  config.intermediate = reader.integer("intermediate_size", 1, kMaxIntermediate);
  config.vocabulary = reader.integer("vocab_size", 1, kMaxVocabulary);
  if (reader.has("head_dim") || reads.head_dim > 0) {
    config.head_dim = reader.integer_or("head_dim", reads.head_dim, 2, kMaxWidth);
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

// Everything that the object with the language model's keys says.
void read_text_model(ConfigReader& reader, const Family& family, ModelConfig& config,
                     std::vector<std::string>& unknown) {
  read_shapes(reader, family.reads, config);
  config.rms_norm_eps = reader.number_or("rms_norm_eps", 1e-6, 1e-30, 1);
  config.initializer_range = reader.number_or("initializer_range", 0.02, 0, 1);
  config.tied = reader.boolean_or("tie_word_embeddings", false);
  config.rope = read_rope(reader, family.reads, config.head_dim, unknown);
  refuse_what_we_cannot_compute(reader, family.reads);
  check_dtype(reader);
  if (!family.reads.layer_types) read_layer_types(reader, config.layers, {LayerType::kFullAttention});
  family.read(reader, config);
  if (config.query_heads % config.kv_heads != 0) {
    reader.refuse("num_key_value_heads", fmt::format("does not divide num_attention_heads {}", config.query_heads));
  }
}

// What stands around the "text_config" of a model with further towers, which are not trained.
const std::set<std::string_view>& keys_around_text_model() {
  static const std::set<std::string_view> keys = [] {
    std::set<std::string_view> all = harmless_keys();
    all.insert({"vision_config", "image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id",
                "language_model_only"});
    return all;
  }();
  return keys;
}

void read_around_text_model(ConfigReader& outer, ConfigReader& text, const Family& family, ModelConfig& config) {
  refuse_what_we_cannot_compute(outer, family.reads);
  check_dtype(outer);
  if (outer.has("tie_word_embeddings")) {
    const bool tied = outer.boolean_or("tie_word_embeddings", false);
    if (text.has("tie_word_embeddings") && tied != config.tied) {
      outer.refuse("tie_word_embeddings", "contradicts the one in \"text_config\"; remove the wrong one");
    }
    config.tied = tied;
  }
}

void warn_of_architecture(ConfigReader& reader, const Family& family, std::vector<std::string>& warnings) {
  if (!reader.has("architectures")) return;
  const Json& names = reader.value("architectures");
  if (names == Json::array()) return;
  if (names.is_array() && names.front().is_string()) {
    const auto& name = names.front().get_ref<const std::string&>();
    if (name == family.architecture) return;
  }
  warnings.push_back(fmt::format("{}: \"architectures\" is {}; it is read as {}", reader.where(),
                                 shown(names.dump(), 80), family.architecture));
}

}  // namespace

ModelConfig parse_config(Json object, const std::string& where) {
  ModelConfig config;
  config.raw = std::move(object);
  ConfigReader outer(JsonObject(config.raw, where));
  const Family* known = find_family(outer.string_or("model_type", ""));
  config.nested = known != nullptr && known->reads.text_config;
  if (!config.nested) refuse_multimodal(outer);
  config.model_type = outer.string("model_type");
  const Family& family = family_of(config.model_type, where);

  ConfigReader text = config.nested ? outer.object("text_config") : outer;
  std::vector<std::string> unknown;
  read_text_model(text, family, config, unknown);
  if (config.nested) read_around_text_model(outer, text, family, config);

  warn_of_architecture(outer, family, config.warnings);
  for (const auto& key : text.unread(harmless_keys())) unknown.push_back(key);
  if (config.nested) {
    for (std::string& key : unknown) key.insert(0, "text_config.");
    for (const auto& key : outer.unread(keys_around_text_model())) unknown.push_back(key);
  }
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

namespace {

// What a configuration says beyond the dense decoder's fields; empty for that one.
std::string hybrid_fields(const ModelConfig& config) {
  if (!config.delta_net.has_value() && !config.experts.has_value()) return "";
  const RopeConfig& rope = config.rope;
  std::string text = fmt::format(" partial={}", rope.partial);
  if (rope.type == RopeType::kYarn) {
    text += fmt::format(" yarn={},{},{},{},{}", rope.factor, rope.beta_fast, rope.beta_slow, rope.original_positions,
                        rope.truncate);
  }
  if (const auto& d = config.delta_net) {
    text +=
        fmt::format(" delta_net={},{},{},{},{}", d->key_heads, d->value_heads, d->key_dim, d->value_dim, d->conv_taps);
  }
  if (const auto& e = config.experts) text += fmt::format(" experts={},{}", e->experts, e->chosen);
  text += fmt::format(" window={} layers=", config.sliding_window);
  for (const LayerType type : config.layer_types) text += static_cast<char>('0' + static_cast<int>(type));
  return text;
}

}  // namespace

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
  return hash_hex(text + hybrid_fields(config));
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
  if (config.nested) saved["text_config"]["dtype"] = type;
  if (config.delta_net.has_value() || config.experts.has_value()) {  // families that older transformers do not know
    saved.erase("torch_dtype");
    saved["dtype"] = type;
    return saved;
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
