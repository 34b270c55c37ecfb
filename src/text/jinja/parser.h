// Builds the tree of a template. Grammar and precedence are Jinja 3.1's.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/ast.h"

namespace lazytrain::text::jinja {

// Throws InputError for what is no Jinja, UsageError for a construct, filter or test that is not known here; both
// name `where` and the line.
Body parse_template(std::string_view source, const std::string& where);

}  // namespace lazytrain::text::jinja
