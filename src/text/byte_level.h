// The byte-level alphabet of GPT-2: each byte is written as one printable character. Bytes 33-126, 161-172 and 174-255
// are their own code points, the other 68 follow from U+0100 on in increasing order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lazytrain::text {

char32_t byte_to_char(uint8_t byte);
std::optional<uint8_t> char_to_byte(char32_t code_point);

// The bytes that a token of the vocabulary stands for; none when a character is not of the alphabet. Well-formed UTF-8.
std::optional<std::string> token_to_bytes(std::string_view token);
std::string bytes_to_token(std::string_view bytes);

}  // namespace lazytrain::text
