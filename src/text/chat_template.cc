#include "text/chat_template.h"

#include "base/error.h"
#include "base/file.h"
#include "text/jinja/budget.h"
#include "text/jinja/parser.h"
#include "text/jinja/runtime.h"

namespace lazytrain::text {
namespace {

constexpr int64_t kMaxConfigBytes = int64_t{64} << 20;
constexpr std::string_view kReasoningKeys[] = {"reasoning_content", "thinking", "reasoning"};

// Adds the "..._token" keys of a file: a text, or an object with its text in "content". What is there stays.
void add_special_tokens(const Json& config, std::map<std::string, std::string>& tokens) {
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token")) continue;
    const Json* text = &value;
    if (value.is_object() && value.contains("content")) text = &value["content"];
    if (text->is_string()) tokens.emplace(key, text->get<std::string>());
  }
}

std::string template_of(const Json& entry, const std::string& where) {
  if (entry.is_string()) return entry.get<std::string>();
  if (!entry.is_array())
    throw InputError("{}: chat_template: expected a string or a list of {{name, template}}", where);
  std::string names;
  for (const Json& named : entry) {
    const JsonObject object(named, where + ": chat_template");
    const std::string name = object.string("name");
    if (name == "default") return object.string("template");
    names += (names.empty() ? "" : ", ") + name;
  }
  throw InputError("{}: chat_template: no template is named \"default\" (there are: {}); name one so", where, names);
}

// A message as templates may count on it: no null, and reasoning under the names in use.
Json normalized_message(const Json& message) {
  Json out = Json::object();
  const Json* reasoning = nullptr;
  for (const auto key : kReasoningKeys) {
    if (reasoning == nullptr && message.contains(key) && !message[key].is_null()) reasoning = &message[key];
  }
  if (reasoning != nullptr) out["thinking"] = *reasoning;
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) out[key] = value;
  }
  if (reasoning != nullptr) out["reasoning_content"] = *reasoning;
  return out;
}

Json normalized_messages(const Json& messages) {
  if (!messages.is_array()) throw RunError("messages: expected a list of messages, found {}", messages.type_name());
  Json out = Json::array();
  for (const Json& message : messages) {
    if (!message.is_object()) {
      throw RunError("messages: message {} is {}, expected an object with role and content", out.size(),
                     message.type_name());
    }
    out.push_back(normalized_message(message));
  }
  return out;
}

}  // namespace

struct ChatTemplate::Parsed {
  jinja::Body body;
};

std::optional<ChatTemplate> ChatTemplate::load(const std::filesystem::path& folder) {
  std::map<std::string, std::string> tokens;
  const auto config_path = folder / "tokenizer_config.json";
  Json config = Json::object();
  if (std::filesystem::exists(config_path)) config = read_json(config_path, kMaxConfigBytes);
  if (!config.is_object())
    throw InputError("{}: expected a JSON object, found {}", config_path.string(), config.type_name());
  add_special_tokens(config, tokens);
  if (const auto map_path = folder / "special_tokens_map.json"; std::filesystem::exists(map_path)) {
    const Json map = read_json(map_path, kMaxConfigBytes);
    add_special_tokens(JsonObject(map, map_path.string()).json(), tokens);
  }
  const auto beside = folder / "chat_template.jinja";
  if (std::filesystem::exists(beside)) return parse(read_file(beside, jinja::kMaxSourceBytes), beside.string(), tokens);
  if (!config.contains("chat_template") || config["chat_template"].is_null()) return std::nullopt;
  return parse(template_of(config["chat_template"], config_path.string()), config_path.string() + ": chat_template",
               tokens);
}

ChatTemplate ChatTemplate::parse(std::string source, std::string where,
                                 std::map<std::string, std::string> special_tokens) {
  ChatTemplate out;
  out.parsed_ = std::make_shared<const Parsed>(Parsed{jinja::parse_template(source, where)});
  out.source_ = std::move(source);
  out.where_ = std::move(where);
  out.special_tokens_ = std::move(special_tokens);
  return out;
}

std::string ChatTemplate::render(const Json& variables) const {
  if (!variables.is_object())
    throw RunError("the variables of a chat template must be an object, found {}", variables.type_name());
  jinja::Runtime runtime(where_);
  for (const char* name : {"tools", "documents"}) runtime.define(name, jinja::Value::none());
  runtime.define("add_generation_prompt", jinja::Value(false));
  for (const auto& [name, text] : special_tokens_) runtime.define(name, jinja::Value(text));
  for (const auto& [name, value] : variables.items()) {
    runtime.define(name, jinja::from_json(name == "messages" ? normalized_messages(value) : value, runtime.budget()));
  }
  return runtime.run(parsed_->body);
}

}  // namespace lazytrain::text
