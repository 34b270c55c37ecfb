#include "eval/prompt_format.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/error.h"
#include "text/encoder.h"
#include "text/samples.h"

namespace lazytrain::eval {
namespace {

std::vector<int32_t> all_stop_ids(const text::Tokenizer& tokenizer, const std::optional<text::ChatTemplate>& chat) {
  std::vector<int32_t> ids = tokenizer.stop_ids();
  if (!chat || !tokenizer.eos_id()) return ids;
  try {
    const int32_t id = text::end_of_turn(*chat, text::encoder_of(tokenizer));
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  } catch (const Error& e) {  // a template that refuses the smallest conversation may still take the user's
    spdlog::warn("no end of turn is known from the chat template: {}", e.what());
  }
  return ids;
}

}  // namespace

PromptFormat::PromptFormat(const std::filesystem::path& folder, bool chat)
    : tokenizer_(text::Tokenizer::load(folder)), where_(folder.string()) {
  if (chat) chat_ = text::ChatTemplate::load(folder);
  stop_ids_ = all_stop_ids(tokenizer_, chat_);
}

std::vector<int32_t> PromptFormat::plain(std::string_view text, bool special) const {
  std::vector<int32_t> ids = special ? tokenizer_.special_prefix() : std::vector<int32_t>();
  const std::vector<int32_t> rest = tokenizer_.encode(text);
  ids.insert(ids.end(), rest.begin(), rest.end());
  return ids;
}

std::vector<int32_t> PromptFormat::conversation(const Json& messages) const {
  if (!chat_) {
    throw UsageError("{}: the model has no chat template (chat_template.jinja or tokenizer_config.json): use --prompt",
                     where_);
  }
  try {
    return tokenizer_.encode(text::generation_prompt(*chat_, messages));
  } catch (const text::RaisedError& error) {
    throw RunError("{}: the template refuses these messages: {}", chat_->where(), error.what());
  }
}

Generation stream(const InferenceModel& model, ThreadPool& pool, const PromptFormat& format,
                  const std::vector<int32_t>& prompt, GenerateOptions options,
                  const std::function<void(std::string_view)>& on_text) {
  if (static_cast<int64_t>(prompt.size()) >= model.graph().max_positions) {
    throw UsageError("the prompt has {} tokens, the model's context {} (max_position_embeddings): shorten it",
                     prompt.size(), model.graph().max_positions);
  }
  text::StreamDecoder decoder(format.tokenizer(), true);
  options.stop_ids = format.stop_ids();
  options.on_token = [&](int64_t, int32_t id) {
    if (const std::string piece = decoder.feed(id); !piece.empty()) on_text(piece);
  };
  Generation generation = std::move(generate(model, pool, {prompt}, options).front());
  if (const std::string rest = decoder.flush(); !rest.empty()) on_text(rest);
  return generation;
}

}  // namespace lazytrain::eval
