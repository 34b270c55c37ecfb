// UTF-8: one code point at a time, and repair of malformed text the way Unicode recommends (a U+FFFD for each maximal
// part of an ill-formed sequence, as Rust's from_utf8_lossy and browsers do).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lazytrain::text {

struct CodePoint {
  char32_t value;
  size_t bytes;
};

// The code point that starts at byte `at`; the text must be well-formed and `at` a boundary inside it.
inline CodePoint code_point_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

// The code point that ends before byte `end` > 0 of well-formed text.
CodePoint code_point_before(std::string_view text, size_t end);

void append_utf8(std::string& out, char32_t code_point);

bool is_ascii(std::string_view text);
bool is_valid_utf8(std::string_view text);

// The text with every malformed part replaced by U+FFFD.
std::string to_valid_utf8(std::string_view bytes);

// How many bytes at the end are the beginning of a sequence that more bytes could complete: 0 to 3.
size_t incomplete_tail(std::string_view bytes);

// Unicode's White_Space property.
bool is_white_space(char32_t code_point);

}  // namespace lazytrain::text
