// Strings as Python sees them: sequences of code points, held here as UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lazytrain::text::jinja {

bool valid_utf8(std::string_view text);

// The code point at `pos` of valid UTF-8; moves pos behind it. A broken byte yields U+FFFD and moves by one.
char32_t next_point(std::string_view text, size_t& pos);
void append_point(std::string& out, char32_t point);

std::u32string to_points(std::string_view text);
std::string from_points(std::u32string_view points);
int64_t point_count(std::string_view text);

bool is_space(char32_t point);      // str.isspace(), which is also \s
bool is_printable(char32_t point);  // str.isprintable(): what repr leaves as it is
bool is_alpha(char32_t point);      // categories L*
bool is_decimal(char32_t point);    // category Nd
bool is_upper(char32_t point);
bool is_lower(char32_t point);

// Case mapping by single code points, but for U+00DF and the Latin ligatures, whose upper case is several letters.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);  // the first code point in title case, the rest lower
std::string title(std::string_view text);       // str.title(): every run of letters capitalized

// Removes code points of `chars` (white space where null) at the left and/or right end.
std::string_view strip(std::string_view text, const std::string_view* chars, bool left, bool right);

}  // namespace lazytrain::text::jinja
