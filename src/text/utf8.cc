#include "text/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace lazytrain::text {
namespace {

struct Sequence {
  size_t bytes;    // well-formed: its length; else the length of the maximal ill-formed part
  bool valid;      // well-formed
  bool truncated;  // ill-formed only because the text ends
};

// Table 3-7 of the Unicode standard.
Sequence sequence_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned char low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < length; ++i) {
    if (at + i >= text.size()) return {i, false, true};
    if (byte(at + i) < low || byte(at + i) > high) return {i, false, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true, false};
}

// The end of the run of ASCII that starts at `at`.
size_t ascii_end(std::string_view text, size_t at) {
  for (uint64_t word = 0; at + sizeof(word) <= text.size(); at += sizeof(word)) {
    std::memcpy(&word, text.data() + at, sizeof(word));
    if ((word & 0x8080808080808080) != 0) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

// The first byte at or behind `at` that is not well-formed, or the size.
size_t valid_end(std::string_view text, size_t at) {
  while ((at = ascii_end(text, at)) < text.size()) {
    const Sequence sequence = sequence_at(text, at);
    if (!sequence.valid) return at;
    at += sequence.bytes;
  }
  return at;
}

}  // namespace

CodePoint code_point_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return code_point_at(text, at);
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xE0 | c >> 12);
    } else {
      put(0xF0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3F));
    }
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

bool is_ascii(std::string_view text) { return ascii_end(text, 0) == text.size(); }

bool is_valid_utf8(std::string_view text) { return valid_end(text, 0) == text.size(); }

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = valid_end(bytes, at);
    out.append(bytes.substr(at, end - at));
    at = end;
    if (at == bytes.size()) break;
    out.append("\xEF\xBF\xBD");
    at += sequence_at(bytes, at).bytes;
  }
  return out;
}

size_t incomplete_tail(std::string_view bytes) {
  for (size_t length = std::min<size_t>(3, bytes.size()); length > 0; --length) {
    const Sequence sequence = sequence_at(bytes, bytes.size() - length);
    if (sequence.truncated && sequence.bytes == length) return length;
  }
  return 0;
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace lazytrain::text
