#include "text/jinja/unicode.h"

#include <utf8proc.h>

namespace lazytrain::text::jinja {
namespace {

constexpr char32_t kSharpS = 0xdf;

// Latin ligatures U+FB00 to U+FB06.
constexpr std::string_view kLigatures[] = {"FF", "FI", "FL", "FFI", "FFL", "ST", "ST"};

void append_upper(std::string& out, char32_t point, bool as_title) {
  if (point == kSharpS) {
    out += as_title ? "Ss" : "SS";
    return;
  }
  if (point >= 0xfb00 && point <= 0xfb06) {
    const std::string_view letters = kLigatures[point - 0xfb00];
    out += letters[0];
    for (const char c : letters.substr(1)) out += as_title ? static_cast<char>(c | 0x20) : c;
    return;
  }
  const auto code = static_cast<utf8proc_int32_t>(point);
  append_point(out, static_cast<char32_t>(as_title ? utf8proc_totitle(code) : utf8proc_toupper(code)));
}

void append_lower(std::string& out, char32_t point) {
  append_point(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point))));
}

utf8proc_category_t category(char32_t point) { return utf8proc_category(static_cast<utf8proc_int32_t>(point)); }

}  // namespace

bool valid_utf8(std::string_view text) {
  utf8proc_int32_t point = 0;
  for (size_t pos = 0; pos < text.size();) {
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + pos);
    const auto used = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size() - pos), &point);
    if (used <= 0) return false;
    pos += static_cast<size_t>(used);
  }
  return true;
}

char32_t next_point(std::string_view text, size_t& pos) {
  const auto first = static_cast<unsigned char>(text[pos]);
  if (first < 0x80) {
    ++pos;
    return first;
  }
  utf8proc_int32_t point = 0;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + pos);
  const auto used = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size() - pos), &point);
  if (used <= 0) {
    ++pos;
    return 0xfffd;
  }
  pos += static_cast<size_t>(used);
  return static_cast<char32_t>(point);
}

void append_point(std::string& out, char32_t point) {
  if (point < 0x80) {
    out += static_cast<char>(point);
    return;
  }
  utf8proc_uint8_t bytes[4];
  const auto used = utf8proc_encode_char(static_cast<utf8proc_int32_t>(point), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(used));
}

std::u32string to_points(std::string_view text) {
  std::u32string points;
  points.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) points += next_point(text, pos);
  return points;
}

std::string from_points(std::u32string_view points) {
  std::string text;
  text.reserve(points.size());
  for (const char32_t point : points) append_point(text, point);
  return text;
}

int64_t point_count(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return count;
}

bool is_space(char32_t p) {
  return (p >= 9 && p <= 13) || (p >= 28 && p <= 32) || p == 0x85 || p == 0xa0 || p == 0x1680 ||
         (p >= 0x2000 && p <= 0x200a) || p == 0x2028 || p == 0x2029 || p == 0x202f || p == 0x205f || p == 0x3000;
}

bool is_printable(char32_t point) {
  if (point == ' ') return true;
  switch (category(point)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

bool is_alpha(char32_t point) {
  const auto c = category(point);
  return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT ||
         c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t point) { return category(point) == UTF8PROC_CATEGORY_ND; }
bool is_upper(char32_t point) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(point)) != 0; }
bool is_lower(char32_t point) { return utf8proc_islower(static_cast<utf8proc_int32_t>(point)) != 0; }

std::string upper(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) append_upper(out, next_point(text, pos), false);
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) append_lower(out, next_point(text, pos));
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  size_t pos = 0;
  if (!text.empty()) append_upper(out, next_point(text, pos), true);
  while (pos < text.size()) append_lower(out, next_point(text, pos));
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t point = next_point(text, pos);
    if (in_word) {
      append_lower(out, point);
    } else {
      append_upper(out, point, true);
    }
    in_word = is_upper(point) || is_lower(point);
  }
  return out;
}

std::string_view strip(std::string_view text, const std::string_view* chars, bool left, bool right) {
  const std::u32string set = chars != nullptr ? to_points(*chars) : std::u32string();
  const auto drop = [&](char32_t p) { return chars != nullptr ? set.find(p) != std::u32string::npos : is_space(p); };
  if (left) {
    size_t pos = 0;
    while (pos < text.size()) {
      size_t next = pos;
      if (!drop(next_point(text, next))) break;
      pos = next;
    }
    text.remove_prefix(pos);
  }
  while (right && !text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
    size_t next = start;
    if (!drop(next_point(text, next))) break;
    text = text.substr(0, start);
  }
  return text;
}

}  // namespace lazytrain::text::jinja
