// Checksums and cache keys: 128-bit XXH3 (not cryptographic; it finds damage, not attackers).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace lazytrain {

// 32 lower-case hex digits.
std::string hash_hex(std::span<const std::byte> bytes);
inline std::string hash_hex(std::string_view text) { return hash_hex(std::as_bytes(std::span(text))); }

// The same of bytes that come piece by piece.
class Hasher {
 public:
  Hasher();
  void update(std::span<const std::byte> bytes);
  std::string hex() const;  // hash_hex of all bytes so far

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace lazytrain
