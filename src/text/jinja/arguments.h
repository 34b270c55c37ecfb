// Reads the arguments of a call by place or by name, and refuses what is left over or missing.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace lazytrain::text::jinja {

class ArgReader {
 public:
  ArgReader(std::string_view callee, Args& args, Budget& budget) : callee_(callee), args_(args), budget_(budget) {}

  // The next argument by place, else the one of this name; null when neither is given.
  const Value* optional(std::string_view name);
  const Value& required(std::string_view name);
  int64_t integer(std::string_view name, int64_t otherwise);
  bool boolean(std::string_view name, bool otherwise);
  // A missing one or None is null.
  const std::string* text(std::string_view name);
  void done() const;

 private:
  std::string_view callee_;
  Args& args_;
  Budget& budget_;
  size_t next_ = 0;
  size_t keywords_read_ = 0;
};

}  // namespace lazytrain::text::jinja
