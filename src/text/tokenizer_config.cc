#include "text/tokenizer_config.h"

#include <charconv>

#include "base/error.h"
#include "base/file.h"
#include "text/vocabulary.h"

namespace lazytrain::text {
namespace {

constexpr int64_t kMaxBytes = int64_t{64} << 20;

// "bos_token" and the like: a string or an object with "content". `known` is what a file of more weight has said, null
// included; keys such as add_bos_token hold no token.
void add_special_tokens(const Json& config, const std::string& where, const Json& known, TokenizerConfig& out) {
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token") || known.contains(key)) continue;
    if (value.is_string()) {
      out.special_tokens[key] = value.get<std::string>();
    } else if (value.is_object()) {
      out.special_tokens[key] = JsonObject(value, where + ": " + shown(key)).string("content");
    }
  }
}

void add_added_tokens(const JsonObject& config, TokenizerConfig& out) {
  if (!config.has("added_tokens_decoder")) return;
  const JsonObject list = config.object("added_tokens_decoder");
  for (const auto& [key, value] : list.json().items()) {
    int64_t id = -1;
    const auto result = std::from_chars(key.data(), key.data() + key.size(), id);
    if (result.ec != std::errc() || result.ptr != key.data() + key.size() || id < 0) {
      throw InputError("{}: the key \"{}\" is not an id", list.where(), shown(key));
    }
    out.added_tokens.emplace_back(id, JsonObject(value, list.where() + ": " + shown(key)).string("content"));
  }
}

// Appends "eos_token_id", an id or a list of ids. False when the file or the key is missing.
bool read_generation_eos(const std::filesystem::path& path, std::vector<int32_t>& ids) {
  if (!std::filesystem::exists(path)) return false;
  const Json json = read_json(path, kMaxBytes);
  const JsonObject config(json, path.string());
  if (!config.has("eos_token_id")) return false;
  const Json& value = json.at("eos_token_id");
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id >= Vocabulary::kMaxId) {
      throw InputError("{}: \"eos_token_id\" holds {}, expected ids from 0 to {}", path.string(), shown(id.dump(), 80),
                       Vocabulary::kMaxId - 1);
    }
    ids.push_back(id.get<int32_t>());
  }
  return true;
}

TokenizerConfig from_json(const Json& config, const std::string& where) {
  TokenizerConfig out;
  const JsonObject object(config, where);
  add_special_tokens(config, where, Json::object(), out);
  add_added_tokens(object, out);
  return out;
}

}  // namespace

TokenizerConfig TokenizerConfig::parse(std::string_view json, const std::string& where) {
  return json.empty() ? TokenizerConfig() : from_json(parse_json(json, where), where);
}

TokenizerConfig TokenizerConfig::load(const std::filesystem::path& folder) {
  TokenizerConfig out;
  Json known = Json::object();
  if (const auto path = folder / "tokenizer_config.json"; std::filesystem::exists(path)) {
    known = read_json(path, kMaxBytes);
    out = from_json(known, path.string());
  }
  if (const auto path = folder / "special_tokens_map.json"; std::filesystem::exists(path)) {
    const Json map = read_json(path, kMaxBytes);
    add_special_tokens(JsonObject(map, path.string()).json(), path.string(), known, out);
  }
  if (!read_generation_eos(folder / "generation_config.json", out.generation_eos)) {
    read_generation_eos(folder / "config.json", out.generation_eos);
  }
  return out;
}

}  // namespace lazytrain::text
