#include "model/config_reader.h"

#include "base/error.h"

namespace lazytrain::model {

double ConfigReader::number(std::string_view key, double min, double max) {
  const double value = object_.number(mark(key));
  if (value < min || value > max) {
    throw InputError("{}: \"{}\" is {}, expected a number from {} to {}", where(), key, value, min, max);
  }
  return value;
}

double ConfigReader::number_or(std::string_view key, double otherwise, double min, double max) {
  return has(key) ? number(key, min, max) : otherwise;
}

void ConfigReader::require(std::string_view key, const Json& accepted, std::string_view reason) {
  if (has(key) && value(key) != accepted) refuse(key, reason);
}

void ConfigReader::refuse(std::string_view key, std::string_view reason) const {
  const auto found = object_.json().find(key);
  throw UsageError("{}: \"{}\" is {}: {}", where(), key,
                   found == object_.json().end() ? "absent" : shown(found->dump(), 80), reason);
}

std::vector<std::string> ConfigReader::unread(const std::set<std::string_view>& harmless) const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.json().items()) {
    if (!value.is_null() && !read_.contains(key) && !harmless.contains(key)) keys.push_back(key);
  }
  return keys;
}

}  // namespace lazytrain::model
