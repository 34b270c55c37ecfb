#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/jinja/budget.h"
#include "text/jinja/unicode.h"

namespace lazytrain::text::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') continue;
      out += '\n';
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& where) : source_(normalize_newlines(source)), where_(where) {}

  std::vector<Token> run() {
    while (pos_ < source_.size()) lex_data();
    push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  template <typename... A>
  [[noreturn]] void fail(fmt::format_string<A...> format, A&&... args) const {
    throw InputError("{}: line {}: {}", where_, line_, fmt::format(format, std::forward<A>(args)...));
  }
  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  bool at(std::string_view text) const { return std::string_view(source_).substr(pos_, text.size()) == text; }
  void advance(size_t count) {
    for (size_t i = 0; i < count; ++i) line_ += source_[pos_ + i] == '\n';
    pos_ += count;
    if (count > 0) after_newline_ = source_[pos_ - 1] == '\n';
  }
  void skip_space() {
    while (pos_ < source_.size()) {
      size_t next = pos_;
      if (!is_space(next_point(source_, next))) return;
      advance(next - pos_);
    }
  }
  // Behind a block's end: "-" takes all white space, otherwise trim_blocks takes one newline ("+" keeps it).
  void after_block(char sign) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && at("\n")) {
      advance(1);
    }
  }

  // Text up to the next tag, and the tag.
  void lex_data() {
    size_t open = pos_;
    for (;; ++open) {
      open = source_.find('{', open);
      if (open == std::string::npos || open + 1 >= source_.size()) break;
      if (source_[open + 1] == '{' || source_[open + 1] == '%' || source_[open + 1] == '#') break;
    }
    if (open == std::string::npos || open + 1 >= source_.size()) {
      push_data(source_.substr(pos_));
      advance(source_.size() - pos_);
      return;
    }
    const char kind = source_[open + 1];
    const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
    const bool signed_tag = sign == '-' || sign == '+';
    std::string_view text = std::string_view(source_).substr(pos_, open - pos_);
    if (sign == '-') {
      text = strip(text, nullptr, false, true);
    } else if (sign != '+' && kind != '{') {  // lstrip_blocks
      const size_t newline = text.rfind('\n');
      const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
      const bool whole_line = newline != std::string_view::npos || after_newline_;
      if (whole_line && strip(text.substr(line_start), nullptr, true, false).empty()) text = text.substr(0, line_start);
    }
    push_data(std::string(text));
    advance(open - pos_ + (signed_tag ? 3 : 2));
    if (kind == '#') return lex_comment();
    if (kind == '{') return lex_tag(TokenKind::kVariableBegin, TokenKind::kVariableEnd, "}}");
    if (!lex_raw()) lex_tag(TokenKind::kBlockBegin, TokenKind::kBlockEnd, "%}");
  }

  void push_data(std::string text) {
    if (!text.empty()) push(TokenKind::kData, std::move(text));
  }

  void lex_comment() {
    const size_t end = source_.find("#}", pos_);
    if (end == std::string::npos) fail("a comment is not closed, expected #}}");
    const char sign = end > pos_ ? source_[end - 1] : '\0';
    advance(end - pos_ + 2);
    after_block(sign);
  }

  // Behind "{%": a raw block is text up to its endraw. False when the tag is another one.
  bool lex_raw() {
    size_t p = skip_from(pos_);
    if (source_.compare(p, 3, "raw") != 0) return false;
    p = skip_from(p + 3);
    const char sign = p < source_.size() ? source_[p] : '\0';
    if (sign == '-') ++p;
    if (source_.compare(p, 2, "%}") != 0) return false;
    advance(p + 2 - pos_);
    if (sign == '-') skip_space();
    for (size_t open = source_.find("{%", pos_); open != std::string::npos; open = source_.find("{%", open + 2)) {
      size_t q = open + 2;
      const char open_sign = q < source_.size() ? source_[q] : '\0';
      if (open_sign == '-' || open_sign == '+') ++q;
      q = skip_from(q);
      if (source_.compare(q, 6, "endraw") != 0) continue;
      q = skip_from(q + 6);
      const char close_sign = q < source_.size() ? source_[q] : '\0';
      if (close_sign == '-' || close_sign == '+') ++q;
      if (source_.compare(q, 2, "%}") != 0) continue;
      push_raw(open, open_sign);
      advance(q + 2 - pos_);
      after_block(close_sign);
      return true;
    }
    fail("a raw block is not closed, expected endraw");
  }

  void push_raw(size_t end, char sign) {
    std::string_view text = std::string_view(source_).substr(pos_, end - pos_);
    if (sign == '-') {
      text = strip(text, nullptr, false, true);
    } else if (sign != '+') {
      const size_t newline = text.rfind('\n');
      const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
      const bool whole_line = newline != std::string_view::npos || after_newline_;
      if (whole_line && strip(text.substr(line_start), nullptr, true, false).empty()) text = text.substr(0, line_start);
    }
    push_data(std::string(text));
  }

  size_t skip_from(size_t p) const {
    while (p < source_.size()) {
      size_t next = p;
      if (!is_space(next_point(source_, next))) break;
      p = next;
    }
    return std::min(p, source_.size());
  }

  void lex_tag(TokenKind begin, TokenKind end, std::string_view close) {
    push(begin, "");
    std::string brackets;  // the open ones: inside them the tag cannot end
    for (;;) {
      if (pos_ >= source_.size()) fail("a tag is not closed, expected {}", close);
      if (brackets.empty()) {
        const bool minus = at(std::string("-").append(close));
        const bool plus = end == TokenKind::kBlockEnd && at(std::string("+").append(close));
        if (minus || plus || at(close)) {
          push(end, "");
          advance(close.size() + (minus || plus ? 1 : 0));
          if (end == TokenKind::kBlockEnd) {
            after_block(minus ? '-' : plus ? '+' : '\0');
          } else if (minus) {
            skip_space();
          }
          return;
        }
      }
      lex_token(brackets);
    }
  }

  void lex_token(std::string& brackets) {
    const char c = source_[pos_];
    size_t next = pos_;
    if (is_space(next_point(source_, next))) return skip_space();
    if (c == '\'' || c == '"') return lex_string(c);
    if (is_digit(c)) return lex_number();
    if (is_name_start(c)) {
      size_t end = pos_;
      while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) ++end;
      push(TokenKind::kName, source_.substr(pos_, end - pos_));
      return advance(end - pos_);
    }
    lex_operator(brackets);
  }

  void lex_operator(std::string& brackets) {
    static constexpr std::array<std::string_view, 26> kOperators = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                    ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto* found = std::find_if(kOperators.begin(), kOperators.end(), [&](std::string_view op) { return at(op); });
    if (found == kOperators.end()) fail("unexpected character '{}'", source_.substr(pos_, 1));
    const char c = found->front();
    if (c == '(' || c == '[' || c == '{') brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty()) fail("unexpected '{}'", c);
      if (brackets.back() != c) fail("unexpected '{}', expected '{}'", c, brackets.back());
      brackets.pop_back();
    }
    push(TokenKind::kOperator, std::string(*found));
    advance(found->size());
  }

  size_t digits_from(size_t p, bool (*digit)(char)) const {
    while (p < source_.size() &&
           (digit(source_[p]) || (source_[p] == '_' && p + 1 < source_.size() && digit(source_[p + 1])))) {
      ++p;
    }
    return p;
  }

  void lex_number() {
    static constexpr auto kHex = [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); };
    if (source_[pos_] == '0' && pos_ + 2 < source_.size()) {
      const char base = static_cast<char>(source_[pos_ + 1] | 0x20);
      const size_t end = digits_from(
          pos_ + 2, base == 'x' ? +kHex : +[](char c) { return is_digit(c); });
      if ((base == 'x' || base == 'o' || base == 'b') && end > pos_ + 2) return push_number(TokenKind::kInteger, end);
    }
    size_t end = digits_from(pos_, is_digit);
    TokenKind kind = TokenKind::kInteger;
    const bool after_dot = pos_ > 0 && source_[pos_ - 1] == '.';
    if (!after_dot && end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      end = digits_from(end + 1, is_digit);
      kind = TokenKind::kFloat;
    }
    if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
      if (exponent < source_.size() && is_digit(source_[exponent])) {
        end = digits_from(exponent, is_digit);
        kind = TokenKind::kFloat;
      }
    }
    push_number(kind, end);
  }

  void push_number(TokenKind kind, size_t end) {
    std::string text = source_.substr(pos_, end - pos_);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    push(kind, std::move(text));
    advance(end - pos_);
  }

  void lex_string(char quote) {
    size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a string is not closed, expected {}", quote);
    const std::string_view body = std::string_view(source_).substr(pos_ + 1, end - pos_ - 1);
    push(TokenKind::kString, unescape(body));
    advance(end + 1 - pos_);
  }

  // Python's escapes; one it does not know stays as it stands.
  std::string unescape(std::string_view body) const {
    std::string out;
    for (size_t i = 0; i < body.size();) {
      if (body[i] != '\\') {
        out += body[i++];
        continue;
      }
      const char c = body[i + 1];
      i += 2;
      static constexpr std::string_view kFrom = "abfnrtv\\'\"";
      static constexpr std::string_view kTo = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t known = kFrom.find(c); known != std::string_view::npos) {
        out += kTo[known];
      } else if (c >= '0' && c <= '7') {
        --i;
        append_code(out, body, i, 8, 1, 3);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_code(out, body, i, 16, digits, digits);
      } else if (c == 'N') {
        throw UsageError("{}: line {}: the escape \\N{{...}} is not among the constructs of chat templates known here",
                         where_, line_);
      } else if (c != '\n') {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  void append_code(std::string& out, std::string_view body, size_t& i, uint32_t base, size_t least, size_t most) const {
    uint32_t code = 0;
    size_t digits = 0;
    for (; digits < most && i < body.size(); ++digits, ++i) {
      const char c = body[i];
      const char lowered = static_cast<char>(c | 0x20);
      const uint32_t digit = is_digit(c)                        ? static_cast<uint32_t>(c - '0')
                             : lowered >= 'a' && lowered <= 'f' ? static_cast<uint32_t>(lowered - 'a' + 10)
                                                                : 99;
      if (digit >= base) break;
      code = code * base + digit;
    }
    if (digits < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) fail("an escape in a string is broken");
    append_point(out, code);
  }

  std::string source_;
  const std::string& where_;
  std::vector<Token> tokens_;
  size_t pos_ = 0;
  int line_ = 1;
  bool after_newline_ = true;  // what was read last ends a line (or nothing was read)
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const std::string& where) {
  if (source.size() > static_cast<size_t>(kMaxSourceBytes)) {
    throw InputError("{}: a chat template of {} bytes, more than the {} it may have", where, source.size(),
                     kMaxSourceBytes);
  }
  if (!valid_utf8(source)) throw InputError("{}: the chat template is not valid UTF-8", where);
  return Lexer(source, where).run();
}

}  // namespace lazytrain::text::jinja
