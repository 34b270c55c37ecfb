// Access to config.json that remembers which keys were asked for, so that none is ignored unknowingly.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace lazytrain::model {

// As JsonObject (null counts as absent); every accessor marks its key as understood.
class ConfigReader {
 public:
  explicit ConfigReader(JsonObject object) : object_(std::move(object)) {}

  const std::string& where() const { return object_.where(); }
  bool has(std::string_view key) { return object_.has(mark(key)); }
  int64_t integer(std::string_view key, int64_t min, int64_t max) { return object_.integer(mark(key), min, max); }
  int64_t integer_or(std::string_view key, int64_t otherwise, int64_t min, int64_t max) {
    return object_.integer_or(mark(key), otherwise, min, max);
  }
  // A number in [min, max]; InputError outside.
  double number(std::string_view key, double min, double max);
  double number_or(std::string_view key, double otherwise, double min, double max);
  bool boolean_or(std::string_view key, bool otherwise) { return object_.boolean_or(mark(key), otherwise); }
  std::string string(std::string_view key) { return object_.string(mark(key)); }
  std::string string_or(std::string_view key, std::string_view otherwise) {
    return object_.string_or(mark(key), otherwise);
  }
  ConfigReader object(std::string_view key) { return ConfigReader(object_.object(mark(key))); }
  const Json& value(std::string_view key) { return object_.json().at(std::string(mark(key))); }

  // Throws UsageError "<file>: "<key>" is <value>: <reason>" unless the key is absent, null, or equal to `accepted`
  // (numbers compare as numbers).
  void require(std::string_view key, const Json& accepted, std::string_view reason);
  [[noreturn]] void refuse(std::string_view key, std::string_view reason) const;

  // Keys with a value that nobody asked for and that are not in `harmless`, in the file's order.
  std::vector<std::string> unread(const std::set<std::string_view>& harmless) const;

 private:
  std::string_view mark(std::string_view key) {
    read_.emplace(key);
    return key;
  }
  JsonObject object_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace lazytrain::model
