#include "model/family.h"

#include <fmt/ranges.h>

#include <array>

#include "base/error.h"
#include "model/gpt_oss.h"
#include "model/llama.h"
#include "model/qwen2.h"
#include "model/qwen3_5.h"

namespace lazytrain::model {
namespace {

constexpr std::array kFamilies = {
    Family{"qwen2", "Qwen2ForCausalLM", read_qwen2, build_qwen2},
    Family{"llama", "LlamaForCausalLM", read_llama, build_llama},
    Family{"mistral", "MistralForCausalLM", read_mistral, build_llama},
    Family{"qwen3_5",
           "Qwen3_5ForConditionalGeneration",
           read_qwen3_5,
           build_qwen3_5,
           {.text_config = true, .layer_types = true, .partial_rotary_factor = 0.25, .head_dim = 256}},
    Family{"qwen3_5_text",
           "Qwen3_5ForCausalLM",
           read_qwen3_5,
           build_qwen3_5,
           {.layer_types = true, .partial_rotary_factor = 0.25, .head_dim = 256}},
    Family{"gpt_oss",
           "GptOssForCausalLM",
           read_gpt_oss,
           build_gpt_oss,
           {.layer_types = true, .experts = true, .yarn = true, .head_dim = 64}},
};

}  // namespace

const Family* find_family(std::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

const Family& family_of(std::string_view model_type, std::string_view where) {
  if (const Family* family = find_family(model_type)) return *family;
  std::vector<std::string> known;
  for (const Family& family : kFamilies) known.emplace_back(family.model_type);
  const std::string near = nearest(model_type, known);
  throw UsageError("{}: unknown model_type \"{}\": known are {}{}", where, shown(model_type, 40),
                   fmt::join(known, ", "), near.empty() ? "" : fmt::format("; the nearest is \"{}\"", near));
}

graph::Graph build_graph(const ModelConfig& config) { return family_of(config.model_type, "model").build(config); }

}  // namespace lazytrain::model
