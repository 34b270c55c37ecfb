// Checksums and cache keys: 128-bit XXH3 (not cryptographic; it finds damage, not attackers).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace lazytrain {

// 32 lower-case hex digits.
std::string hash_hex(std::span<const std::byte> bytes);
inline std::string hash_hex(std::string_view text) { return hash_hex(std::as_bytes(std::span(text))); }

}  // namespace lazytrain
