// How Python writes values: str(), repr() and json.dumps().
#pragma once

#include <string>

#include "text/jinja/value.h"

namespace lazytrain::text::jinja {

std::string float_repr(double value);
void append_str(std::string& out, const Value& value, Budget& budget);
inline std::string str(const Value& value, Budget& budget) {
  std::string out;
  append_str(out, value, budget);
  return out;
}
std::string repr(const Value& value, Budget& budget);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool indented = false;
  std::string indent;  // of one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// json.dumps(value) with these arguments. What JSON cannot hold is an error.
std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace lazytrain::text::jinja
