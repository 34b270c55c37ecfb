#include "text/dataset.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/hash.h"

namespace lazytrain::text {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kPairs = {{
    {"prompt", "completion"},
    {"prompt", "response"},
    {"query", "response"},
    {"question", "answer"},
}};
constexpr std::string_view kExpected =
    "prompt and completion, prompt and response, query and response, question and answer, instruction and output, "
    "messages, conversations, or the keys that data.prompt and data.response name";

std::string keys_of(const Json& row) {
  std::string keys;
  for (const auto& [key, value] : row.items()) {
    if (!keys.empty()) keys += ", ";
    keys += keys.size() > 300 ? "..." : key.substr(0, 60);
    if (keys.size() > 300) break;
  }
  return keys.empty() ? "none" : keys;
}

// Parses a row; a syntax error names the line of the file instead of that of the row.
Json parse_row(const RawRow& row, const std::string& path) {
  const std::string where = fmt::format("{}: line {}", path, row.line);
  try {
    Json json = parse_json(row.text, where);
    if (!json.is_object()) throw InputError("{}: expected a JSON object, found {}", where, json.type_name());
    return json;
  } catch (const InputError& e) {
    std::string_view message = e.what();
    const std::string prefix = where + ": line ";
    if (!message.starts_with(prefix)) throw;
    message.remove_prefix(prefix.size());
    int64_t inner = 0;
    const auto [end, error] = std::from_chars(message.data(), message.data() + message.size(), inner);
    if (error != std::errc()) throw;
    message.remove_prefix(static_cast<size_t>(end - message.data()));
    throw InputError("{}: line {}{}", path, row.line + inner - 1, message);
  }
}

[[noreturn]] void missing(const Json& row, const std::string& where, std::string_view expected) {
  throw InputError("{}: expected {}, found the keys {}; all rows must have the same", where, expected, keys_of(row));
}

std::string text_of(const Json& row, const std::string& key, const std::string& where, const RowSchema& schema) {
  const auto it = row.find(key);
  if (it == row.end()) missing(row, where, fmt::format("{} and {}", schema.prompt, schema.response));
  if (!it->is_string()) throw InputError("{}: \"{}\" is {}, expected a string", where, key, it->type_name());
  return it->get<std::string>();
}

// A template renders a role that it does not know as some other one, or not at all, and says nothing of it.
std::string role_of(const std::string& name, std::string_view key, const std::string& where) {
  if (name == "human") return "user";
  if (name == "gpt") return "assistant";
  for (const std::string_view role : {"system", "user", "assistant", "tool"}) {
    if (name == role) return name;
  }
  throw InputError("{}: \"{}\" is \"{}\", expected one of system, user, assistant, tool, human (user), gpt (assistant)",
                   where, key, shown(name));
}

Json messages_of(const Json& row, const RowSchema& schema, const std::string& where) {
  const bool from_value = schema.kind == RowKind::kConversations;
  const auto it = row.find(schema.prompt);
  if (it == row.end()) missing(row, where, schema.prompt);
  if (!it->is_array() || it->empty()) throw InputError("{}: \"{}\" must be a list of messages", where, schema.prompt);
  Json messages = Json::array();
  for (const Json& message : *it) {
    const std::string place = fmt::format("{}: message {} of \"{}\"", where, messages.size(), schema.prompt);
    const JsonObject object(message, place);
    if (from_value) {
      messages.push_back(
          {{"role", role_of(object.string("from"), "from", place)}, {"content", object.string("value")}});
    } else {
      const std::string role = role_of(object.string("role"), "role", place);
      messages.push_back(message);
      messages.back()["role"] = role;
    }
  }
  return messages;
}

}  // namespace

RowSchema detect_schema(const RawRow& raw, const FieldMapping& mapping, const std::string& path) {
  if (mapping.prompt.empty() != mapping.response.empty()) {
    throw UsageError("data.prompt and data.response name keys of the data's rows: set both or none");
  }
  if (!mapping.prompt.empty()) return {RowKind::kMapped, mapping.prompt, mapping.response};
  const Json row = parse_row(raw, path);
  for (const auto& [prompt, response] : kPairs) {
    if (row.contains(prompt) && row.contains(response))
      return {RowKind::kPair, std::string(prompt), std::string(response)};
  }
  if (row.contains("instruction") && row.contains("output")) return {RowKind::kInstruction, "instruction", "output"};
  if (row.contains("messages")) return {RowKind::kMessages, "messages", ""};
  if (row.contains("conversations")) return {RowKind::kConversations, "conversations", ""};
  throw InputError("{}: line {}: the keys of the rows are not recognised: found {}; expected {}", path, raw.line,
                   keys_of(row), kExpected);
}

Record parse_record(const RawRow& raw, const RowSchema& schema, const std::string& path) {
  const Json row = parse_row(raw, path);
  const std::string where = fmt::format("{}: line {}", path, raw.line);
  Record record;
  record.line = raw.line;
  if (schema.kind == RowKind::kMessages || schema.kind == RowKind::kConversations) {
    record.messages = messages_of(row, schema, where);
    return record;
  }
  record.prompt = text_of(row, schema.prompt, where, schema);
  record.response = text_of(row, schema.response, where, schema);
  if (schema.kind == RowKind::kInstruction && row.contains("input") && !row["input"].is_null()) {
    const std::string input = text_of(row, "input", where, schema);
    if (!input.empty()) record.prompt.append("\n").append(input);
  }
  return record;
}

Dataset::Dataset(const std::filesystem::path& path, const FieldMapping& mapping)
    : path_(path.string()), file_(path), reader_(file_.bytes(), path_) {
  RowReader first(file_.bytes(), path_);
  RawRow row;
  if (!first.next(row)) throw InputError("{}: no rows; expected JSON lines or a JSON array of objects", path_);
  schema_ = detect_schema(row, mapping, path_);
}

bool Dataset::next(Record& record) {
  RawRow row;
  if (!reader_.next(row)) return false;
  record = parse(row);
  return true;
}

std::string Dataset::content_hash() const { return hash_hex(file_.bytes()); }

}  // namespace lazytrain::text
