// A model's chat template: from messages to the text the model was trained on. Templates are Jinja; the subset that
// public chat templates use is interpreted here (text/jinja/), anything else is a UsageError that names it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/json.h"

namespace lazytrain::text {

// What a template says with raise_exception: its text alone.
struct RaisedError : RunError {
  using RunError::RunError;
};

class ChatTemplate {
 public:
  // The template of a model folder: chat_template.jinja, else the key chat_template of tokenizer_config.json (a text,
  // or a list of {name, template} of which "default" is taken). Nothing when the folder has none. The special tokens
  // are those of tokenizer_config.json and special_tokens_map.json. Throws InputError or UsageError on a broken or
  // unknown template.
  static std::optional<ChatTemplate> load(const std::filesystem::path& folder);
  // `where` names the source in messages; `special_tokens` maps names as "bos_token" to texts.
  static ChatTemplate parse(std::string source, std::string where, std::map<std::string, std::string> special_tokens);

  // The text for {messages, add_generation_prompt, any other variable}, as apply_chat_template of transformers 5
  // gives it: keys of a message that are null are dropped, reasoning is known under its several names, tools and
  // documents are none unless given. Throws RaisedError with exactly the template's text where it
  // calls raise_exception, else RunError naming the template and the line. Ends for every template: see
  // text/jinja/budget.h. Safe from several threads at a time.
  std::string render(const Json& variables) const;

  const std::string& source() const { return source_; }
  const std::string& where() const { return where_; }
  const std::map<std::string, std::string>& special_tokens() const { return special_tokens_; }

 private:
  struct Parsed;
  ChatTemplate() = default;

  std::string source_;
  std::string where_;
  std::map<std::string, std::string> special_tokens_;
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace lazytrain::text
