// The patterns that most tokenizers use, matched by hand: faster than a regex engine, linear in the text, and with the
// reference's Unicode version.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace lazytrain::text {

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

enum class KnownPattern { kGpt2, kQwen2, kQwen35, kLlama3 };

std::optional<KnownPattern> known_pattern(std::string_view regex);

// The end of the match that begins at byte `at` < size of well-formed text: each of these patterns matches everywhere.
size_t match_known(KnownPattern pattern, std::string_view text, size_t at);

}  // namespace lazytrain::text
