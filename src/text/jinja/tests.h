// What stands behind "is" in a template.
#pragma once

#include <string_view>

#include "text/jinja/value.h"

namespace lazytrain::text::jinja {

bool is_test(std::string_view name);
bool apply_test(std::string_view name, const Value& value, Args& args, Budget& budget);

}  // namespace lazytrain::text::jinja
