#include "text/jinja/arguments.h"

namespace lazytrain::text::jinja {

const Value* ArgReader::optional(std::string_view name) {
  if (next_ < args_.positional.size()) return &args_.positional[next_++];
  next_ = args_.positional.size();
  for (auto& [keyword, value] : args_.keyword) {
    if (keyword == name) {
      ++keywords_read_;
      return &value;
    }
  }
  return nullptr;
}

const Value& ArgReader::required(std::string_view name) {
  const Value* value = optional(name);
  if (value == nullptr) budget_.fail("{} needs the argument '{}'", callee_, name);
  return *value;
}

int64_t ArgReader::integer(std::string_view name, int64_t otherwise) {
  const Value* value = optional(name);
  if (value == nullptr) return otherwise;
  int64_t whole = 0;
  if (!to_integer(*value, whole))
    budget_.fail("{}: '{}' must be a whole number, not {}", callee_, name, type_name(*value));
  return whole;
}

bool ArgReader::boolean(std::string_view name, bool otherwise) {
  const Value* value = optional(name);
  return value == nullptr ? otherwise : truthy(*value);
}

const std::string* ArgReader::text(std::string_view name) {
  const Value* value = optional(name);
  if (value == nullptr || value->is_none()) return nullptr;
  if (!value->is_string()) budget_.fail("{}: '{}' must be a string, not {}", callee_, name, type_name(*value));
  return &value->string();
}

void ArgReader::done() const {
  if (next_ < args_.positional.size() || keywords_read_ < args_.keyword.size()) {
    budget_.fail("{} does not take these {} arguments", callee_, args_.positional.size() + args_.keyword.size());
  }
}

}  // namespace lazytrain::text::jinja
