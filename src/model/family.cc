#include "model/family.h"

#include <fmt/ranges.h>

#include <array>

#include "base/error.h"
#include "model/llama.h"
#include "model/qwen2.h"

namespace lazytrain::model {
namespace {

constexpr std::array kFamilies = {
    Family{"qwen2", "Qwen2ForCausalLM", read_qwen2, build_qwen2},
    Family{"llama", "LlamaForCausalLM", read_llama, build_llama},
    Family{"mistral", "MistralForCausalLM", read_mistral, build_llama},
};

}  // namespace

const Family& family_of(std::string_view model_type, std::string_view where) {
  std::vector<std::string> known;
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return family;
    known.emplace_back(family.model_type);
  }
  const std::string near = nearest(model_type, known);
  throw UsageError("{}: unknown model_type \"{}\": known are {}{}", where, shown(model_type, 40),
                   fmt::join(known, ", "), near.empty() ? "" : fmt::format("; the nearest is \"{}\"", near));
}

graph::Graph build_graph(const ModelConfig& config) { return family_of(config.model_type, "model").build(config); }

}  // namespace lazytrain::model
