#include "text/onig_pattern.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace lazytrain::text {
namespace {

// Oniguruma's \w, with Latin-1's superscripts and fractions; PCRE2's own is L, N and "_".
constexpr std::string_view kWord = "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

constexpr std::array<std::pair<std::string_view, std::string_view>, 34> kCategories = {{
    {"letter", "L"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"privateuse", "Co"},
}};

constexpr std::array<std::string_view, 4> kBinary = {"alphabetic", "whitespace", "uppercase", "lowercase"};

// Oniguruma folds these letters to ligatures such as U+FB01 when case is ignored; PCRE2 folds one to one.
constexpr std::array<std::string_view, 5> kFolding = {"ss", "ff", "fi", "fl", "st"};

// The property name as PCRE2 spells it, without braces; none when it is neither of these nor like a script's name.
std::optional<std::string> property_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    if (std::isalpha(static_cast<unsigned char>(c)) == 0) return std::nullopt;
    plain.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  }
  for (const auto& [word, category] : kCategories) {
    std::string short_name(category);
    std::transform(short_name.begin(), short_name.end(), short_name.begin(),
                   [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
    if (plain == word || plain == short_name) return std::string(category);
  }
  if (plain == "c" || plain == "cn") return plain == "c" ? "C" : "Cn";
  if (std::find(kBinary.begin(), kBinary.end(), plain) != kBinary.end()) {
    return plain == "whitespace" ? "White_Space" : plain;
  }
  if (plain.size() < 3) return std::nullopt;
  return "sc:" + std::string(name);  // a bare script name is Script_Extensions to PCRE2
}

class Translator {
 public:
  Translator(std::string_view in, const std::string& where) : in_(in), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) step();
    return std::move(out_);
  }

 private:
  void step() {
    const char c = in_[at_];
    if (c != '\\' && c != '[' && c != '(' && c != ')' && c != '{') {
      literal(c);
      return;
    }
    previous_ = 0;
    switch (c) {
      case '\\':
        escape();
        break;
      case '[':
        char_class();
        break;
      case '(':
        group();
        break;
      case ')':
        if (!caseless_.empty()) caseless_.pop_back();
        out_ += in_[at_++];
        break;
      default:
        interval();
    }
  }

  void literal(char c) {
    if (ignoring_case()) {
      const auto lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      if (static_cast<unsigned char>(c) >= 0x80) refuse("a letter beyond ASCII where case is ignored");
      const std::array<char, 2> pair = {previous_, lower};
      if (std::find(kFolding.begin(), kFolding.end(), std::string_view(pair.data(), 2)) != kFolding.end()) {
        refuse("letters that fold to a ligature where case is ignored");
      }
      previous_ = lower;
    }
    out_ += c;
    ++at_;
  }

  // Group openings. Ruby's (?m) is "dot matches newline", PCRE2's (?s).
  void group() {
    const bool caseless = ignoring_case();
    const std::string_view rest = in_.substr(at_);
    if (rest.starts_with("(*")) refuse("(*...)");
    for (const std::string_view open : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"}) {
      if (rest.starts_with(open)) return open_group(open, open, caseless);
    }
    if (!rest.starts_with("(?")) return open_group("(", "(?:", caseless);
    size_t end = 2;
    std::string options = "(?";
    bool on = true, now = caseless;
    for (; end < rest.size() && (rest[end] == 'i' || rest[end] == 'm' || rest[end] == '-'); ++end) {
      if (rest[end] == '-') on = false;
      if (rest[end] == 'i') now = on;
      options += rest[end] == 'm' ? 's' : rest[end];
    }
    if (end < rest.size() && end > 2 && rest[end] == ':') {
      return open_group(rest.substr(0, end + 1), options + ":", now);
    }
    // In the middle of a pattern Ruby lets the options reach over the alternatives behind it in another way.
    if (end < rest.size() && end > 2 && rest[end] == ')' && at_ == 0) {
      whole_caseless_ = now;
      out_ += options + ")";
      at_ += end + 1;
      return;
    }
    refuse(rest.substr(0, std::min<size_t>(rest.size(), 4)));
  }

  void open_group(std::string_view source, std::string_view replacement, bool caseless) {
    caseless_.push_back(caseless);
    out_ += replacement;
    at_ += source.size();
  }

  // {n}, {n,}, {n,m}, {,m}; anything else is a literal brace.
  void interval() {
    size_t end = at_ + 1;
    const auto digits = [&] {
      const size_t begin = end;
      while (end < in_.size() && std::isdigit(static_cast<unsigned char>(in_[end])) != 0) ++end;
      return std::string(in_.substr(begin, end - begin));
    };
    const std::string low = digits();
    const bool comma = end < in_.size() && in_[end] == ',';
    if (comma) ++end;
    const std::string high = comma ? digits() : "";
    if (end >= in_.size() || in_[end] != '}' || (low.empty() && high.empty())) {
      out_ += "\\{";
      ++at_;
      return;
    }
    at_ = end + 1;
    const char next = at_ < in_.size() ? in_[at_] : '\0';
    if (next == '+' || (next == '?' && !comma)) refuse(fmt::format("an interval followed by \"{}\"", next));
    out_ += "{" + (low.empty() ? "0" : low) + (comma ? "," + high : "") + "}";
  }

  void escape() {
    const char c = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    const std::string word(kWord);
    std::string replacement;
    switch (c) {
      case 'w':
        replacement = "[" + word + "]";
        break;
      case 'W':
        replacement = "[^" + word + "]";
        break;
      case 'h':
        replacement = "[0-9a-fA-F]";
        break;
      case 'H':
        replacement = "[^0-9a-fA-F]";
        break;
      case 'b':
        replacement = fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", word);
        break;
      case 'B':
        replacement = fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", word);
        break;
      case 'A':
      case 'z':
      case 'Z':
        replacement = std::string("\\") + c;
        break;
      default:
        return shared_escape();
    }
    out_ += replacement;
    at_ += 2;
  }

  // Escapes that mean the same inside and outside of a class.
  void shared_escape() {
    if (at_ + 1 >= in_.size()) refuse("a backslash at the end");
    const char c = in_[at_ + 1];
    const auto put = [&](std::string_view text) {
      out_ += text;
      at_ += 2;
    };
    if (c == 's') return put("\\p{White_Space}");
    if (c == 'S') return put("\\P{White_Space}");
    if (c == 'd') return put("\\p{Nd}");
    if (c == 'D') return put("\\P{Nd}");
    if (c == 'v') return put("\\x{0B}");
    if (c == 'p' || c == 'P') return property();
    if (c == 'x' || c == 'u') return code_point();
    if (std::string_view("tnrfae").find(c) != std::string_view::npos) return put(in_.substr(at_, 2));
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) refuse(in_.substr(at_, 2));
    put(in_.substr(at_, 2));
  }

  void property() {
    const size_t open = at_ + 2, close = in_.find('}', open);
    if (open >= in_.size() || in_[open] != '{' || close == std::string_view::npos) refuse(in_.substr(at_, 4));
    std::string_view name = in_.substr(open + 1, close - open - 1);
    bool negative = in_[at_ + 1] == 'P';
    if (name.starts_with('^')) {
      negative = !negative;
      name.remove_prefix(1);
    }
    const auto known = property_name(name);
    if (!known) refuse(in_.substr(at_, close + 1 - at_));
    const bool cased = *known == "Lu" || *known == "Ll" || *known == "Lt" || known->ends_with("ercase");
    if (cased && ignoring_case()) refuse(fmt::format("\\p{{{}}} where case is ignored", name));
    out_ += fmt::format("\\{}{{{}}}", negative ? 'P' : 'p', *known);
    at_ = close + 1;
  }

  // \xHH, \x{H...}, \uHHHH
  void code_point() {
    const bool braces = in_.substr(at_).starts_with("\\x{");
    size_t end = at_ + (braces ? 3 : 2);
    const size_t begin = end, limit = braces ? 8 : in_[at_ + 1] == 'u' ? 4 : 2;
    while (end < in_.size() && end - begin < limit && std::isxdigit(static_cast<unsigned char>(in_[end])) != 0) ++end;
    const std::string digits(in_.substr(begin, end - begin));
    const bool whole = braces ? !digits.empty() && end < in_.size() && in_[end] == '}' : digits.size() == limit;
    // Two hex digits from 80 on are a byte, not a code point, to Oniguruma.
    if (!whole || (limit == 2 && digits[0] >= '8')) refuse(in_.substr(at_, end - at_));
    out_ += "\\x{" + digits + "}";
    at_ = end + (braces ? 1 : 0);
  }

  void char_class() {
    out_ += '[';
    ++at_;
    if (at_ < in_.size() && in_[at_] == '^') out_ += in_[at_++];
    if (at_ < in_.size() && in_[at_] == ']') refuse("a class that begins with ]");
    while (at_ < in_.size() && in_[at_] != ']') {
      const std::string_view rest = in_.substr(at_);
      if (rest[0] == '[') refuse("[ inside a class");
      if (rest.starts_with("&&")) refuse("&& inside a class");
      if (rest.starts_with("\\w")) {
        out_ += kWord;
        at_ += 2;
      } else if (rest.starts_with("\\h")) {
        out_ += "0-9a-fA-F";
        at_ += 2;
      } else if (rest.starts_with("\\b")) {
        out_ += "\\x{08}";
        at_ += 2;
      } else if (rest[0] == '\\') {
        shared_escape();
      } else {
        out_ += in_[at_++];
      }
    }
    if (at_ >= in_.size()) refuse("a class without its ]");
    out_ += ']';
    ++at_;
  }

  bool ignoring_case() const { return caseless_.empty() ? whole_caseless_ : caseless_.back(); }

  [[noreturn]] void refuse(std::string_view construct) const {
    throw UsageError("{}: the pattern \"{}\" has {} at byte {}, which is not supported", where_, shown(in_, 200),
                     shown(construct), at_);
  }

  std::string_view in_;
  const std::string& where_;
  std::string out_;
  size_t at_ = 0;
  std::vector<bool> caseless_;  // of each open group
  bool whole_caseless_ = false;
  char previous_ = 0;  // the literal before, where case is ignored
};

}  // namespace

std::string to_pcre2(std::string_view pattern, const std::string& where) { return Translator(pattern, where).run(); }

}  // namespace lazytrain::text
