#include "text/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace lazytrain::text {
namespace {

constexpr int kChars = 256 + 68;

constexpr bool is_itself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
}

struct Alphabet {
  std::array<uint16_t, 256> chars{};
  std::array<int16_t, kChars> bytes{};  // -1 where a code point is not of the alphabet
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.bytes) byte = -1;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const int c = is_itself(byte) ? byte : next++;
    alphabet.chars[static_cast<size_t>(byte)] = static_cast<uint16_t>(c);
    alphabet.bytes[static_cast<size_t>(c)] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

char32_t byte_to_char(uint8_t byte) { return kAlphabet.chars[byte]; }

std::optional<uint8_t> char_to_byte(char32_t c) {
  if (c >= kChars || kAlphabet.bytes[c] < 0) return std::nullopt;
  return static_cast<uint8_t>(kAlphabet.bytes[c]);
}

std::optional<std::string> token_to_bytes(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const CodePoint point = code_point_at(token, at);
    const auto byte = char_to_byte(point.value);
    if (!byte) return std::nullopt;
    bytes.push_back(static_cast<char>(*byte));
    at += point.bytes;
  }
  return bytes;
}

std::string bytes_to_token(std::string_view bytes) {
  std::string token;
  for (const char byte : bytes) append_utf8(token, byte_to_char(static_cast<uint8_t>(byte)));
  return token;
}

}  // namespace lazytrain::text
