// Standard output belongs to results: text for a person, or with --json exactly one object.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace lazytrain::cli {

// Thrown when whoever read our output is gone (`lazytrain ... | head -1`): nobody is left to tell.
struct ReaderGone {};

// Writes the bytes as they are and flushes. Throws ReaderGone, or RunError with errno when they cannot be written.
void write_stdout(std::string_view text);

// True where standard output is a terminal that shows colours (and NO_COLOR is not set, https://no-color.org).
bool shows_colour();

// One result in its two forms; a newline is added to either.
void print(bool json, const Json& object, std::string_view text);

// "name   value" lines with the values in one column.
class Table {
 public:
  void add(std::string_view name, std::string_view value);
  std::string text() const;

 private:
  std::vector<std::pair<std::string, std::string>> rows_;
};

}  // namespace lazytrain::cli
