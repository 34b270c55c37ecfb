#include "text/known_patterns.h"

#include <cstdint>
#include <limits>

#include "text/unicode.h"
#include "text/utf8.h"

namespace lazytrain::text {
namespace {

struct Rules {
  bool gpt2;     // one optional space before letters, numbers and the rest; no rule for line ends
  uint8_t word;  // classes that words are made of
  int64_t max_digits;
};

constexpr Rules kRules[] = {
    {true, kLetter, std::numeric_limits<int64_t>::max()},
    {false, kLetter, 1},
    {false, kLetter | kMark, 1},
    {false, kLetter, 3},
};

class Matcher {
 public:
  Matcher(const Rules& rules, std::string_view text) : rules_(rules), text_(text) {}

  size_t match(size_t at) const {
    if (text_[at] == '\'') {
      if (const size_t length = contraction(text_.substr(at + 1)); length > 0) return at + 1 + length;
    }
    return rules_.gpt2 ? match_gpt2(at) : match_words(at);
  }

 private:
  struct Char {
    uint8_t classes;
    size_t end;
  };
  Char read(size_t at) const {
    const CodePoint point = code_point_at(text_, at);
    return {char_class(point.value), at + point.bytes};
  }

  // ` ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+` and white space
  size_t match_gpt2(size_t at) const {
    const size_t begin = text_[at] == ' ' && at + 1 < text_.size() ? at + 1 : at;
    const Char first = read(begin);
    if (first.classes & kSpace) return white_space(at);
    if (first.classes & (kLetter | kNumber)) return run(begin, first.classes, rules_.max_digits);
    return others(begin);
  }

  size_t match_words(size_t at) const {
    const Char first = read(at);
    // [^\r\n\p{L}\p{N}]?WORD+ where the optional character is given back when no word follows.
    const bool prefix = (first.classes & (kLetter | kNumber | kNewline)) == 0;
    if (prefix && first.end < text_.size() && (read(first.end).classes & rules_.word)) return word(first.end);
    if (first.classes & rules_.word) return word(at);
    if (first.classes & kNumber) return run(at, kNumber, rules_.max_digits);
    //  ?[^\s WORD \p{N}]+[\r\n]*
    const size_t begin = text_[at] == ' ' && at + 1 < text_.size() ? at + 1 : at;
    if (!is_other(read(begin).classes)) return white_space(at);
    size_t end = others(begin);
    while (end < text_.size() && (text_[end] == '\r' || text_[end] == '\n')) ++end;
    return end;
  }

  bool is_other(uint8_t classes) const { return (classes & (kSpace | kNumber | rules_.word)) == 0; }

  size_t word(size_t at) const { return run(at, rules_.word, std::numeric_limits<int64_t>::max()); }

  size_t run(size_t at, uint8_t classes, int64_t limit) const {
    for (; at < text_.size() && limit > 0; --limit) {
      const Char c = read(at);
      if ((c.classes & classes) == 0) break;
      at = c.end;
    }
    return at;
  }

  size_t others(size_t at) const {
    while (at < text_.size()) {
      const Char c = read(at);
      if (!is_other(c.classes)) break;
      at = c.end;
    }
    return at;
  }

  // `\s*[\r\n]+` ends behind the last line end of the run; `\s+(?!\S)` leaves one character to what follows; `\s+`.
  size_t white_space(size_t at) const {
    size_t end = at, last = at, line_end = 0;
    while (end < text_.size()) {
      const Char c = read(end);
      if ((c.classes & kSpace) == 0) break;
      last = end;
      end = c.end;
      if (c.classes & kNewline) line_end = end;
    }
    if (!rules_.gpt2 && line_end > 0) return line_end;
    return end == text_.size() || last == at ? end : last;
  }

  // How many bytes behind the apostrophe belong to 's, 't, 're, 've, 'm, 'll or 'd.
  size_t contraction(std::string_view rest) const {
    const auto letter = [&](size_t i) {
      const char c = i < rest.size() ? rest[i] : '\0';
      return !rules_.gpt2 && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    switch (letter(0)) {
      case 's':
      case 't':
      case 'm':
      case 'd':
        return 1;
      case 'r':
      case 'v':
        return letter(1) == 'e' ? 2 : 0;
      case 'l':
        return letter(1) == 'l' ? 2 : 0;
      default:
        // U+017F, the long s, is an s where case is ignored.
        return !rules_.gpt2 && rest.starts_with("\xC5\xBF") ? 2 : 0;
    }
  }

  const Rules& rules_;
  std::string_view text_;
};

}  // namespace

std::optional<KnownPattern> known_pattern(std::string_view regex) {
  if (regex == kGpt2Pattern) return KnownPattern::kGpt2;
  if (regex == kQwen2Pattern) return KnownPattern::kQwen2;
  if (regex == kQwen35Pattern) return KnownPattern::kQwen35;
  if (regex == kLlama3Pattern) return KnownPattern::kLlama3;
  return std::nullopt;
}

size_t match_known(KnownPattern pattern, std::string_view text, size_t at) {
  return Matcher(kRules[static_cast<size_t>(pattern)], text).match(at);
}

}  // namespace lazytrain::text
