// The page itself: self-contained, no request leaves it.
#pragma once

#include <string>
#include <string_view>

#include "report/run_data.h"

namespace lazytrain::report {

// Text as it may stand in HTML, attributes included. Malformed UTF-8 and control characters become U+FFFD.
std::string escape_html(std::string_view text);

std::string render_html(const PageData& page);

}  // namespace lazytrain::report
