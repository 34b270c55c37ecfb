#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "model/config_testing.h"

namespace lazytrain::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::gpt_oss_json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::llama_json;
using testing::mistral_json;
using testing::qwen2_json;
using testing::qwen3_5_json;
using testing::qwen3_5_text_json;
using testing::with;
using testing::without;

constexpr const char* kLlama3 = R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
  "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})";

ModelConfig parse(const Json& json) { return parse_config(json, "config.json"); }

template <typename E>
std::string message_of(const Json& json) {
  try {
    parse(json);
  } catch (const E& error) {
    return error.what();
  }
  return "no error of this type";
}

TEST(Config, ReadsEveryField) {
  const ModelConfig c = parse(qwen2_json());
  EXPECT_EQ(c.model_type, "qwen2");
  EXPECT_EQ(c.hidden, 56);
  EXPECT_EQ(c.layers, 2);
  EXPECT_EQ(c.query_heads, 7);
  EXPECT_EQ(c.kv_heads, 1);
  EXPECT_EQ(c.head_dim, 8);
  EXPECT_EQ(c.intermediate, 96);
  EXPECT_EQ(c.vocabulary, 300);
  EXPECT_EQ(c.max_positions, 128);
  EXPECT_EQ(c.rms_norm_eps, 1e-6);
  EXPECT_EQ(c.rope.theta, 1e6);
  EXPECT_TRUE(c.qkv_bias);
  EXPECT_FALSE(c.output_bias);
  EXPECT_FALSE(c.mlp_bias);
  EXPECT_TRUE(c.tied);
  EXPECT_THAT(c.warnings, IsEmpty());
}

TEST(Config, TakesFamilyDefaults) {
  Json json = llama_json();
  for (const char* key : {"head_dim", "num_key_value_heads", "rope_theta", "rms_norm_eps", "max_position_embeddings",
                          "attention_bias", "mlp_bias", "hidden_act"}) {
    json.erase(key);
  }
  const ModelConfig c = parse(json);
  EXPECT_EQ(c.head_dim, 12);
  EXPECT_EQ(c.kv_heads, 4);
  EXPECT_EQ(c.rope.theta, 10000);
  EXPECT_EQ(c.rms_norm_eps, 1e-6);
  EXPECT_EQ(c.initializer_range, 0.02);
  EXPECT_EQ(c.max_positions, 2048);
  EXPECT_FALSE(c.tied);
  EXPECT_FALSE(c.qkv_bias);
  EXPECT_FALSE(parse(without(qwen2_json(), "tie_word_embeddings")).tied);
  EXPECT_EQ(parse(without(qwen2_json(), "max_position_embeddings")).max_positions, 32768);
}

TEST(Config, HonoursBiasesOfLlama) {
  const ModelConfig c = parse(with(with(llama_json(), "attention_bias", "true"), "mlp_bias", "true"));
  EXPECT_TRUE(c.qkv_bias && c.output_bias && c.mlp_bias);
}

TEST(Config, BothSpellingsAreTheSameModel) {
  Json older = with(llama_json(), "rope_theta", "500000.0");
  older["rope_scaling"] = parse_json(kLlama3, "value");
  Json current = without(without(llama_json(), "rope_theta"), "torch_dtype");
  current["dtype"] = "bfloat16";
  current["rope_parameters"] = parse_json(kLlama3, "value");
  current["rope_parameters"]["rope_theta"] = 500000.0;
  current["layer_types"] = {"full_attention", "full_attention"};
  const ModelConfig a = parse(older), b = parse(current);
  EXPECT_EQ(a.rope.type, RopeType::kLlama3);
  EXPECT_EQ(a.rope.theta, 500000);
  EXPECT_EQ(a.rope.factor, 8);
  EXPECT_EQ(a.rope.original_positions, 8192);
  EXPECT_EQ(a.rope, b.rope);
  EXPECT_EQ(fingerprint(a), fingerprint(b));
  EXPECT_THAT(b.warnings, IsEmpty());

  const Json type_only = with(llama_json(), "rope_scaling", R"({"type": "default"})");
  EXPECT_EQ(parse(type_only).rope, parse(llama_json()).rope);
  EXPECT_EQ(parse(with(llama_json(), "rope_scaling", "null")).rope, parse(llama_json()).rope);
}

TEST(Config, UnknownKeysAreWarningsThatNameThem) {
  Json json = with(llama_json(), "logit_scale", "2.0");
  json["rope_parameters"] = parse_json(R"({"rope_type": "default", "rope_theta": 10000.0, "extra": 1})", "value");
  json["never_heard_of"] = nullptr;  // null: not used
  EXPECT_THAT(parse(json).warnings, ElementsAre(AllOf(HasSubstr("rope_parameters.extra"), HasSubstr("config.json")),
                                                HasSubstr("logit_scale")));
  json = llama_json();
  for (const char* key : {"bos_token_id", "eos_token_id", "use_cache", "transformers_version", "_name_or_path"})
    json[key] = 1;
  EXPECT_THAT(parse(json).warnings, IsEmpty());
  EXPECT_THAT(parse(with(llama_json(), "architectures", R"(["LlamaForSequenceClassification"])")).warnings,
              ElementsAre(HasSubstr("LlamaForSequenceClassification")));
  EXPECT_THAT(parse(with(llama_json(), "architectures", R"(["Qwen2ForCausalLM"])")).warnings,
              ElementsAre(AllOf(HasSubstr("Qwen2ForCausalLM"), HasSubstr("LlamaForCausalLM"))));
}

struct Refused {
  Json json;
  const char* key;  // that the message names
};

class ConfigRefusal : public ::testing::TestWithParam<Refused> {};

TEST_P(ConfigRefusal, IsUsageErrorNamingTheKey) {
  EXPECT_THAT(message_of<UsageError>(GetParam().json), AllOf(HasSubstr("config.json"), HasSubstr(GetParam().key)));
}

std::string scaling(const char* type) { return std::string(R"({"factor": 4.0, "rope_type": ")") + type + "\"}"; }

INSTANTIATE_TEST_SUITE_P(
    All, ConfigRefusal,
    ::testing::Values(
        Refused{with(qwen2_json(), "hidden_act", R"("gelu")"), "hidden_act"},
        Refused{with(qwen2_json(), "use_sliding_window", "true"), "use_sliding_window"},
        Refused{with(qwen2_json(), "use_mrope", "true"), "use_mrope"},
        Refused{with(qwen2_json(), "rope_scaling", kLlama3), "rope_scaling"},
        Refused{with(qwen2_json(), "rope_scaling", scaling("yarn")), "yarn"},
        Refused{with(qwen2_json(), "rope_parameters", scaling("yarn")), "yarn"},
        Refused{with(llama_json(), "rope_scaling", scaling("linear")), "linear"},
        Refused{with(llama_json(), "rope_scaling", scaling("dynamic")), "dynamic"},
        Refused{with(llama_json(), "rope_scaling", scaling("longrope")), "longrope"},
        Refused{with(llama_json(), "rope_scaling", R"({"type": "linear", "factor": 2.0})"), "linear"},
        Refused{with(llama_json(), "rope_scaling", R"({"factor": 2.0})"), "factor"},
        Refused{with(llama_json(), "rope_scaling", R"({"type": "linear", "rope_type": "default"})"), "type"},
        Refused{with(llama_json(), "rope_parameters", R"({"full_attention": {"rope_type": "default"}})"),
                "rope_parameters"},
        Refused{with(llama_json(), "rope_parameters", R"({"rope_theta": 5.0})"), "rope_theta"},
        Refused{with(llama_json(), "rope_parameters", R"({"partial_rotary_factor": 0.5})"), "partial_rotary_factor"},
        Refused{with(with(llama_json(), "rope_scaling", kLlama3), "rope_parameters", R"({"rope_type": "default"})"),
                "rope_parameters"},
        Refused{with(llama_json(), "partial_rotary_factor", "0.5"), "partial_rotary_factor"},
        Refused{with(llama_json(), "rope_interleaved", "true"), "rope_interleaved"},
        Refused{with(llama_json(), "pretraining_tp", "2"), "pretraining_tp"},
        Refused{with(llama_json(), "attention_dropout", "0.1"), "attention_dropout"},
        Refused{with(llama_json(), "quantization_config", R"({"quant_method": "gptq"})"), "quantization_config"},
        Refused{with(llama_json(), "num_local_experts", "8"), "num_local_experts"},
        Refused{with(qwen2_json(), "num_experts", "60"), "num_experts"},
        Refused{with(llama_json(), "is_encoder_decoder", "true"), "is_encoder_decoder"},
        Refused{with(llama_json(), "torch_dtype", R"("float8_e4m3fn")"), "torch_dtype"},
        Refused{with(llama_json(), "dtype", R"("int8")"), "dtype"},
        Refused{with(llama_json(), "layer_types", R"(["full_attention", "sliding_attention"])"), "sliding_attention"},
        Refused{with(llama_json(), "text_config", R"({"hidden_size": 8})"), "multimodal"},
        Refused{with(llama_json(), "vision_config", "{}"), "multimodal"},
        Refused{with(llama_json(), "num_key_value_heads", "3"), "num_key_value_heads"},
        Refused{with(without(llama_json(), "head_dim"), "num_attention_heads", "5"), "num_attention_heads"},
        Refused{with(llama_json(), "head_dim", "15"), "15"},
        Refused{with(mistral_json(), "sliding_window", "64"), "sliding_window"},
        Refused{with(without(mistral_json(), "sliding_window"), "max_position_embeddings", "32768"), "sliding_window"},
        Refused{with(llama_json(), "model_type", R"("lama")"), "\"llama\""}));

TEST(Config, UnknownModelTypeListsTheKnownOnes) {
  EXPECT_THAT(message_of<UsageError>(with(llama_json(), "model_type", R"("qwen3")")),
              AllOf(HasSubstr("\"qwen3\""), HasSubstr("qwen2, llama, mistral"), HasSubstr("nearest is \"qwen2\"")));
}

TEST(Config, AcceptsWhatHasNoEffect) {
  EXPECT_NO_THROW(parse(with(with(qwen2_json(), "use_sliding_window", "true"), "max_window_layers", "2")));
  EXPECT_NO_THROW(parse(with(mistral_json(), "sliding_window", "128")));
  EXPECT_NO_THROW(parse(with(mistral_json(), "sliding_window", "4096")));
  EXPECT_NO_THROW(parse(without(mistral_json(), "sliding_window")));  // 4096, and 128 positions
  EXPECT_NO_THROW(parse(with(llama_json(), "attention_dropout", "0")));
  EXPECT_NO_THROW(parse(with(llama_json(), "pretraining_tp", "1")));
  EXPECT_NO_THROW(parse(with(llama_json(), "quantization_config", "null")));
}

TEST(Config, BrokenValuesAreInputErrors) {
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                          "intermediate_size", "vocab_size", "model_type"}) {
    EXPECT_THAT(message_of<InputError>(without(qwen2_json(), key)), HasSubstr(key));
  }
  for (const char* value : {"0", "-1", "1e400", "9223372036854775807", "\"56\"", "[]", "5.5"}) {
    EXPECT_THROW(parse(with(qwen2_json(), "hidden_size", value)), InputError) << value;
    EXPECT_THROW(parse(with(qwen2_json(), "num_hidden_layers", value)), InputError) << value;
    EXPECT_THROW(parse(with(qwen2_json(), "vocab_size", value)), InputError) << value;
  }
  EXPECT_THROW(parse(with(qwen2_json(), "rms_norm_eps", "0")), InputError);
  EXPECT_THROW(parse(with(qwen2_json(), "rope_theta", "\"1e6\"")), InputError);
  EXPECT_THROW(parse(with(qwen2_json(), "rope_scaling", "[]")), InputError);
  EXPECT_THROW(parse(with(qwen2_json(), "layer_types", R"(["full_attention"])")), InputError);
  EXPECT_THROW(parse(with(llama_json(), "rope_scaling", R"({"rope_type": "llama3", "factor": 8.0})")), InputError);
  EXPECT_THROW(parse(parse_json("[1]", "config.json")), InputError);
}

TEST(HybridConfig, ReadsBothForms) {
  const ModelConfig nested = parse(qwen3_5_json()), flat = parse(qwen3_5_text_json());
  EXPECT_THAT(nested.warnings, IsEmpty());
  EXPECT_THAT(flat.warnings, IsEmpty());
  EXPECT_TRUE(nested.nested);
  EXPECT_FALSE(flat.nested);
  EXPECT_EQ(fingerprint(nested), fingerprint(flat));
  EXPECT_EQ(nested.hidden, 32);
  EXPECT_EQ(nested.head_dim, 16);
  EXPECT_EQ(nested.rope.partial, 0.25);
  EXPECT_EQ(nested.delta_net->value_heads, 4);
  EXPECT_EQ(nested.delta_net->conv_taps, 4);
  EXPECT_THAT(nested.layer_types, ElementsAre(LayerType::kLinearAttention, LayerType::kLinearAttention,
                                              LayerType::kLinearAttention, LayerType::kFullAttention));
  // What the file does not say.
  Json json = qwen3_5_text_json();
  for (const char* key :
       {"layer_types", "head_dim", "linear_num_value_heads", "rope_parameters", "dtype", "max_position_embeddings"}) {
    json.erase(key);
  }
  const ModelConfig c = parse(json);
  EXPECT_EQ(c.layer_types, flat.layer_types);
  EXPECT_EQ(c.head_dim, 256);  // never hidden_size / num_attention_heads
  EXPECT_EQ(c.delta_net->value_heads, 32);
  EXPECT_EQ(c.rope.partial, 0.25);
  EXPECT_EQ(c.max_positions, 32768);
  EXPECT_THAT(parse(with(json, "full_attention_interval", "2")).layer_types,
              ElementsAre(LayerType::kLinearAttention, LayerType::kFullAttention, LayerType::kLinearAttention,
                          LayerType::kFullAttention));
  EXPECT_THAT(parse(with(json, "full_attention_interval", "1")).layer_types,
              ::testing::Each(LayerType::kFullAttention));
}

TEST(HybridConfig, TyingStandsOutsideTheTextConfig) {
  Json json = with(qwen3_5_json(), "tie_word_embeddings", "true");
  EXPECT_TRUE(parse(json).tied);
  json["text_config"]["tie_word_embeddings"] = true;
  EXPECT_TRUE(parse(json).tied);
  json["text_config"]["tie_word_embeddings"] = false;
  EXPECT_THAT(message_of<UsageError>(json), HasSubstr("tie_word_embeddings"));
  json.erase("tie_word_embeddings");
  EXPECT_FALSE(parse(json).tied);
}

TEST(HybridConfig, UnknownKeysAreNamedWhereTheyStand) {
  Json json = with(qwen3_5_json(), "audio_token_id", "3");
  json["text_config"]["new_gate"] = true;
  json["text_config"]["rope_parameters"]["extra"] = 1;
  EXPECT_THAT(parse(json).warnings, ElementsAre(HasSubstr("text_config.rope_parameters.extra"),
                                                HasSubstr("text_config.new_gate"), HasSubstr("audio_token_id")));
}

TEST(HybridConfig, RefusesWhatItDoesNotCompute) {
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{
           {"attn_output_gate", "false"},
           {"attention_bias", "true"},
           {"mamba_ssm_dtype", R"("bfloat16")"},
           {"mlp_only_layers", "[1]"},
           {"output_gate_type", R"("sigmoid")"},
           {"linear_num_value_heads", "3"},
           {"num_experts", "8"},
           {"hidden_act", R"("gelu")"},
           {"layer_types", R"(["linear_attention", "linear_attention", "linear_attention", "sliding_attention"])"},
           {"partial_rotary_factor", "0.5"},  // contradicts the one in rope_parameters
           {"rope_parameters", R"({"rope_type": "default", "mrope_section": [1, 1, 1]})"},
           {"rope_parameters", R"({"rope_type": "default", "mrope_section": [2]})"},
           {"rope_parameters", R"({"rope_type": "default", "mrope_section": [-1, 3, 0]})"},
           {"rope_parameters", R"({"rope_type": "default", "mrope_section": [18446744073709551615, 1, 2]})"},
           {"rope_parameters", R"({"rope_type": "default", "mrope_section": "1,1,0"})"},
           {"rope_parameters", R"({"rope_type": "default", "partial_rotary_factor": 0.3})"},
           {"rope_parameters", kLlama3},
           {"rope_parameters", R"({"rope_type": "yarn", "factor": 4.0})"}}) {
    EXPECT_THAT(message_of<UsageError>(with(qwen3_5_text_json(), key, value)), HasSubstr("config.json"))
        << key << value;
    Json nested = qwen3_5_json();
    nested["text_config"] = with(nested["text_config"], key, value);
    EXPECT_THAT(message_of<UsageError>(nested), HasSubstr("text_config")) << key << value;
  }
  EXPECT_THAT(message_of<UsageError>(with(qwen3_5_json(), "quantization_config", R"({"bits": 4})")),
              HasSubstr("quantization_config"));
  Json other = qwen3_5_json();
  other["text_config"]["model_type"] = "qwen3_5_moe_text";
  EXPECT_THAT(message_of<UsageError>(other), HasSubstr("qwen3_5_moe_text"));
}

TEST(HybridConfig, BrokenValuesAreInputErrors) {
  for (const char* types :
       {"[]", R"(["linear_attention"])", "7", R"("full_attention")", "{}",
        R"(["full_attention","full_attention","full_attention","full_attention","full_attention"])"}) {
    EXPECT_THROW(parse(with(qwen3_5_text_json(), "layer_types", types)), InputError) << types;
  }
  EXPECT_THROW(parse(with(qwen3_5_text_json(), "layer_types", "[1, 2, 3, null]")), UsageError);
  for (const char* key : {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
                          "linear_value_head_dim", "linear_conv_kernel_dim", "full_attention_interval"}) {
    for (const char* value : {"0", "-4", "1e9", "9223372036854775807", "\"8\""}) {
      EXPECT_THROW(parse(with(qwen3_5_text_json(), key, value)), InputError) << key << value;
    }
  }
  for (const char* value : {"0", "2", "-0.25", "\"half\""}) {
    EXPECT_THROW(parse(with(qwen3_5_text_json(), "partial_rotary_factor", value)), InputError) << value;
  }
  EXPECT_THROW(parse(without(qwen3_5_json(), "text_config")), InputError);
  EXPECT_THROW(parse(with(qwen3_5_json(), "text_config", "[1]")), InputError);
  EXPECT_THROW(parse(with(qwen3_5_json(), "text_config", "{}")), InputError);
}

TEST(ExpertsConfig, ReadsItsFields) {
  const ModelConfig c = parse(gpt_oss_json());
  EXPECT_THAT(c.warnings, IsEmpty());
  EXPECT_EQ(c.experts->experts, 6);
  EXPECT_EQ(c.experts->chosen, 2);
  EXPECT_EQ(c.sliding_window, 8);
  EXPECT_TRUE(c.qkv_bias && c.output_bias);
  EXPECT_EQ(c.rope.type, RopeType::kYarn);
  EXPECT_FALSE(c.rope.truncate);
  EXPECT_THAT(c.layer_types, ElementsAre(LayerType::kSlidingAttention, LayerType::kFullAttention));
  EXPECT_EQ(parse(without(gpt_oss_json(), "layer_types")).layer_types, c.layer_types);
  EXPECT_EQ(parse(without(gpt_oss_json(), "head_dim")).head_dim, 64);
}

TEST(ExpertsConfig, RefusesWhatItDoesNotCompute) {
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{
           {"swiglu_limit", "5.0"},
           {"swiglu_alpha", "1.0"},
           {"output_router_logits", "true"},
           {"experts_per_token", "3"},
           {"layer_types", R"(["linear_attention", "full_attention"])"},
           {"quantization_config", R"({"quant_method": "mxfp4"})"},
           {"rope_scaling", "null"},
           {"rope_scaling", R"({"rope_type": "linear", "factor": 2.0})"},
           {"rope_scaling", R"({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64,
                               "beta_fast": 1, "beta_slow": 2})"},
           {"rope_scaling", R"({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64,
                               "attention_factor": 1.0})"}}) {
    EXPECT_THAT(message_of<UsageError>(with(gpt_oss_json(), key, value)), HasSubstr("config.json")) << key << value;
  }
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{{"num_local_experts", "0"},
                                                                                   {"num_local_experts", "1e6"},
                                                                                   {"num_experts_per_tok", "7"},
                                                                                   {"sliding_window", "0"},
                                                                                   {"layer_types", "[]"}}) {
    EXPECT_THROW(parse(with(gpt_oss_json(), key, value)), InputError) << key << value;
  }
}

TEST(Config, HybridsAreToldApartByTheirFingerprints) {
  std::set<std::string> seen;
  for (const Json& json :
       {qwen3_5_text_json(), with(qwen3_5_text_json(), "linear_num_value_heads", "8"),
        with(qwen3_5_text_json(), "linear_conv_kernel_dim", "3"), with(qwen3_5_text_json(), "linear_key_head_dim", "4"),
        with(qwen3_5_text_json(), "layer_types", R"(["full_attention", "linear_attention", "linear_attention",
                                                    "linear_attention"])"),
        with(qwen3_5_text_json(), "rope_parameters", R"({"partial_rotary_factor": 0.5, "rope_theta": 10000.0})"),
        gpt_oss_json(), with(gpt_oss_json(), "sliding_window", "9"), with(gpt_oss_json(), "num_experts_per_tok", "3"),
        with(gpt_oss_json(), "num_local_experts", "7"), llama_json()}) {
    EXPECT_TRUE(seen.insert(fingerprint(parse(json))).second) << json.dump();
  }
}

TEST(HybridConfig, SavedFormIsReadAgain) {
  for (const Json& json : {qwen3_5_json(), qwen3_5_text_json(), gpt_oss_json()}) {
    const ModelConfig config = parse(json);
    const Json saved = saved_config(config, DType::kF32);
    EXPECT_EQ(fingerprint(parse(saved)), fingerprint(config));
    EXPECT_EQ((config.nested ? saved["text_config"] : saved)["dtype"], "float32");
  }
}

TEST(Config, FingerprintFollowsTheMaths) {
  const std::string base = fingerprint(parse(llama_json()));
  EXPECT_EQ(base.size(), 32u);
  EXPECT_EQ(base, fingerprint(parse(mistral_json())));
  EXPECT_EQ(base, fingerprint(parse(with(llama_json(), "torch_dtype", "\"float32\""))));
  EXPECT_EQ(base, fingerprint(parse(with(llama_json(), "initializer_range", "0.5"))));
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{{"hidden_size", "52"},
                                                                                   {"num_hidden_layers", "3"},
                                                                                   {"num_attention_heads", "8"},
                                                                                   {"num_key_value_heads", "1"},
                                                                                   {"head_dim", "8"},
                                                                                   {"intermediate_size", "97"},
                                                                                   {"vocab_size", "301"},
                                                                                   {"rms_norm_eps", "1e-6"},
                                                                                   {"rope_theta", "20000.0"},
                                                                                   {"attention_bias", "true"},
                                                                                   {"mlp_bias", "true"},
                                                                                   {"tie_word_embeddings", "true"},
                                                                                   {"rope_scaling", kLlama3}}) {
    EXPECT_NE(base, fingerprint(parse(with(llama_json(), key, value)))) << key;
  }
}

TEST(Config, SavedFormIsReadByOlderAndCurrentTransformers) {
  Json current = without(without(llama_json(), "rope_theta"), "torch_dtype");
  current.erase("architectures");
  current["dtype"] = "bfloat16";
  current["rope_parameters"] = parse_json(kLlama3, "value");
  current["rope_parameters"]["rope_theta"] = 500000.0;
  current["custom"] = {{"kept", true}};
  const ModelConfig config = parse(current);
  const Json saved = saved_config(config, DType::kF32);
  EXPECT_EQ(saved["torch_dtype"], "float32");
  EXPECT_EQ(saved["dtype"], "float32");
  EXPECT_EQ(saved["rope_theta"], 500000.0);
  EXPECT_EQ(saved["rope_scaling"]["rope_type"], "llama3");
  EXPECT_EQ(saved["rope_scaling"]["original_max_position_embeddings"], 8192);
  EXPECT_EQ(saved["architectures"], Json::array({"LlamaForCausalLM"}));
  EXPECT_EQ(saved["custom"], current["custom"]);
  EXPECT_EQ(fingerprint(parse(saved)), fingerprint(config));
  EXPECT_EQ(saved_config(parse(qwen2_json()), DType::kBF16)["torch_dtype"], "bfloat16");
  EXPECT_FALSE(saved_config(parse(qwen2_json()), DType::kBF16).contains("dtype"));
  EXPECT_THROW(saved_config(config, DType::kF16), UsageError);
}

TEST(Config, LoadsFolderOrFile) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "config_test";
  std::filesystem::remove_all(folder);
  EXPECT_THROW(load_config(folder), UsageError);
  std::filesystem::create_directories(folder);
  EXPECT_THROW(load_config(folder), UsageError);
  write_file(folder / "config.json", llama_json().dump());
  EXPECT_EQ(load_config(folder).hidden, 48);
  EXPECT_EQ(load_config(folder / "config.json").hidden, 48);
  write_file(folder / "config.json", "{");
  EXPECT_THROW(load_config(folder), InputError);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lazytrain::model
