// How texts become prompts for a model, and completions texts.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "eval/generate.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lazytrain::eval {

// The tokenizer of a model folder and, when it is asked for and there, its chat template.
class PromptFormat {
 public:
  // Errors: see text::Tokenizer::load and text::ChatTemplate::load.
  PromptFormat(const std::filesystem::path& folder, bool chat);

  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  const text::ChatTemplate* chat() const { return chat_ ? &*chat_ : nullptr; }

  // A text as it stands. With `special` behind what the tokenizer puts before texts (Llama 3: BOS), which training
  // without a template does not.
  std::vector<int32_t> plain(std::string_view text, bool special) const;
  // Messages rendered up to where the assistant's turn begins. UsageError without a template; RunError when the
  // template refuses them.
  std::vector<int32_t> conversation(const Json& messages) const;
  // The tokenizer's stop ids and the template's end of turn.
  const std::vector<int32_t>& stop_ids() const { return stop_ids_; }

 private:
  text::Tokenizer tokenizer_;
  std::optional<text::ChatTemplate> chat_;
  std::string where_;
  std::vector<int32_t> stop_ids_;
};

// Generates for one prompt (options.stop_ids are the format's) and hands the text on as it comes, whole characters at a
// time, control tokens left out. Throws UsageError when the prompt fills the model's context.
Generation stream(const InferenceModel& model, ThreadPool& pool, const PromptFormat& format,
                  const std::vector<int32_t>& prompt, GenerateOptions options,
                  const std::function<void(std::string_view)>& on_text);

}  // namespace lazytrain::eval
