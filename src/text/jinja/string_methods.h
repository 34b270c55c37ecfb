// The methods of Python's str.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace lazytrain::text::jinja {

bool is_string_method(std::string_view name);          // known here
bool is_foreign_string_method(std::string_view name);  // of Python's str, but not known here
Value call_string_method(const std::string& name, const Value& self, Args& args, Budget& budget);

}  // namespace lazytrain::text::jinja
