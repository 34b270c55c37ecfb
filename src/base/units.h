// Bytes and times as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lazytrain {

// "20GB" = 20e9, "20GiB" = 20 * 2^30, "512MB", "1.5e9", "300". Units: B, kB, KB, MB, GB, TB, KiB, MiB, GiB, TiB.
// Throws UsageError naming `key` when the text is no size or is negative.
int64_t parse_bytes(std::string_view text, std::string_view key);

std::string format_bytes(int64_t bytes);     // "1.24 GB" (powers of ten, three digits)
std::string format_seconds(double seconds);  // "12.3 ms", "4.20 s", "3 min 20 s", "2 h 05 min"
std::string format_count(double count);      // "135 M", "1.54 B"

}  // namespace lazytrain
