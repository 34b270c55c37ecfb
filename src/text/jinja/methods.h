// The methods of Python's str, list, tuple and dict that do not change them.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/value.h"

namespace lazytrain::text::jinja {

// The bound method `name` of `self`, or nothing when Python has no such attribute. A method that changes its object is
// an error, as in Jinja's immutable sandbox; one that is not known here is a UsageError.
std::optional<Value> method_of(const Value& self, const std::string& name, Budget& budget);

// str.splitlines(), shared with the filter indent.
Values split_lines(const std::string& text, bool keep_ends, Budget& budget);
std::string replace_all(const std::string& text, const std::string& from, const std::string& to, int64_t count,
                        Budget& budget);

}  // namespace lazytrain::text::jinja
