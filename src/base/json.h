// JSON from files that nobody has checked: bounded size and depth, duplicate keys refused, typed access by key with
// errors that name the file, the key, what was found and what was expected.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lazytrain {

using Json = nlohmann::ordered_json;

// Parses text; `where` is the file's name for messages. Throws InputError on a syntax error (with line and column),
// more than 256 levels, invalid UTF-8, or a key that stands twice in one object.
Json parse_json(std::string_view text, std::string_view where);
Json read_json(const std::filesystem::path& path, int64_t limit = int64_t{1} << 30);

// An object with the name of its file, for messages. A missing or mistyped key is an InputError.
class JsonObject {
 public:
  JsonObject(const Json& object, std::string where);
  JsonObject(Json&&, std::string) = delete;  // it keeps a reference: the document must outlive it

  const Json& json() const { return *object_; }
  const std::string& where() const { return where_; }
  bool has(std::string_view key) const;  // present and not null
  int64_t integer(std::string_view key, int64_t min, int64_t max) const;
  int64_t integer_or(std::string_view key, int64_t otherwise, int64_t min, int64_t max) const;
  double number(std::string_view key) const;
  double number_or(std::string_view key, double otherwise) const;
  bool boolean_or(std::string_view key, bool otherwise) const;
  std::string string(std::string_view key) const;
  std::string string_or(std::string_view key, std::string_view otherwise) const;
  JsonObject object(std::string_view key) const;

 private:
  const Json& at(std::string_view key) const;
  [[noreturn]] void mistyped(std::string_view key, std::string_view expected) const;
  const Json* object_;
  std::string where_;
};

// Text of a file as a message may show it: at most `limit` bytes of it (cut between characters, then "..."), control
// characters as \xNN.
std::string shown(std::string_view text, size_t limit = 100);

// The candidate closest to `word` by edit distance, or "" when none is near: for "unknown key, did you mean".
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace lazytrain
