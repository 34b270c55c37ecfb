// Patterns in tokenizer.json are Oniguruma's Ruby syntax with Unicode classes. Here they are rewritten for PCRE2 so
// that the same text matches; what cannot be rewritten is refused by name.
#pragma once

#include <string>
#include <string_view>

namespace lazytrain::text {

// The pattern for PCRE2 with PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE and newline LF. `where` begins the messages.
// UsageError names the construct that has no equal.
std::string to_pcre2(std::string_view pattern, const std::string& where);

}  // namespace lazytrain::text
