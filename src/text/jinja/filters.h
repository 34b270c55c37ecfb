// What stands behind "|" in a template.
#pragma once

#include <string_view>

#include "text/jinja/runtime.h"

namespace lazytrain::text::jinja {

bool is_filter(std::string_view name);
Value apply_filter(std::string_view name, const Value& value, Args& args, Runtime& runtime);

}  // namespace lazytrain::text::jinja
