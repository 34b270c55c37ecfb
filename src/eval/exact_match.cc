#include "eval/exact_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <utility>

namespace lazytrain::eval {
namespace {

constexpr std::array<std::string_view, 2> kMarkers = {"####", "The answer is:"};
constexpr std::array<std::string_view, 6> kCurrencies = {"\\$", "$", "€", "£", "¥", "₹"};
constexpr std::string_view kMinusSign = "−";
constexpr std::string_view kSpaces = " \t\r\n\f\v";
constexpr size_t kFractionDigits = 18;  // of each part of a/b: they fit int64_t

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

// The answer behind the last marker; nothing when there is no marker.
std::optional<std::string_view> marked_answer(std::string_view text) {
  size_t begin = std::string_view::npos;
  for (const std::string_view marker : kMarkers) {
    const size_t at = text.rfind(marker);
    if (at != std::string_view::npos && (begin == std::string_view::npos || at + marker.size() > begin)) {
      begin = at + marker.size();
    }
  }
  if (begin == std::string_view::npos) return std::nullopt;
  const std::string_view rest = trim(text.substr(begin));
  return trim(rest.substr(0, rest.find('\n')));
}

// "007.50" -> "7.5", "-0" -> "0".
std::string canonical(bool negative, std::string_view whole, std::string_view fraction) {
  whole.remove_prefix(std::min(whole.find_first_not_of('0'), whole.size()));
  fraction = fraction.substr(0, fraction.find_last_not_of('0') + 1);
  const std::string_view digits = whole.empty() ? "0" : whole;
  return fmt::format("{}{}{}{}", negative && !(whole.empty() && fraction.empty()) ? "-" : "", digits,
                     fraction.empty() ? "" : ".", fraction);
}

std::optional<int64_t> small_integer(const std::string& digits) {
  if (digits.empty() || digits.size() > kFractionDigits) return std::nullopt;
  int64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

// The quotient as a decimal where it ends, else reduced.
std::string quotient(bool negative, int64_t a, int64_t b) {
  const int64_t divisor = std::gcd(a, b);
  a /= divisor;
  b /= divisor;
  std::string fraction;
  int64_t rest = a % b;
  int64_t fives_and_twos = b;
  while (fives_and_twos % 2 == 0) fives_and_twos /= 2;
  while (fives_and_twos % 5 == 0) fives_and_twos /= 5;
  if (fives_and_twos != 1) return fmt::format("{}{}/{}", negative && a != 0 ? "-" : "", a, b);
  while (rest != 0) {
    __extension__ using Wide = __int128;
    const Wide tenfold = static_cast<Wide>(rest) * 10;
    fraction += static_cast<char>('0' + static_cast<int>(tenfold / b));
    rest = static_cast<int64_t>(tenfold % b);
  }
  return canonical(negative, std::to_string(a / b), fraction);
}

struct Number {
  size_t begin = 0;  // with sign and currency
  size_t end = 0;    // with a percent sign
  std::string value;
};

// Reads numbers one after the other.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  std::optional<Number> next() {
    while (at_ < text_.size() && !starts_digits(at_)) ++at_;
    if (at_ == text_.size()) return std::nullopt;
    Number number;
    const bool negative = read_prefix(number);
    std::string whole = digits(true), fraction;
    if (starts_decimals()) {
      ++at_;
      fraction = digits(false);
    }
    number.value = canonical(negative, whole, fraction);
    if (fraction.empty()) read_denominator(negative, whole, number);
    const std::string_view rest = text_.substr(at_);
    at_ += rest.starts_with("\\%") ? 2 : rest.starts_with("%") ? 1 : 0;
    number.end = at_;
    return number;
  }

 private:
  char char_at(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }
  bool starts_decimals() const { return char_at(at_) == '.' && is_digit(char_at(at_ + 1)); }
  bool starts_digits(size_t i) const {
    return is_digit(text_[i]) || (text_[i] == '.' && is_digit(char_at(i + 1)) && (i == 0 || !is_digit(text_[i - 1])));
  }

  std::string digits(bool with_commas) {
    std::string out;
    for (; at_ < text_.size(); ++at_) {
      if (is_digit(text_[at_])) {
        out += text_[at_];
      } else if (!with_commas || text_[at_] != ',' || out.empty() || !is_digit(char_at(at_ + 1))) {
        break;
      }
    }
    return out;
  }

  // Looks back from the first digit over currency and sign, in either order. True for a minus.
  bool read_prefix(Number& number) const {
    number.begin = at_;
    bool negative = false;
    bool sign = false;
    for (bool found = true; found;) {
      found = false;
      const std::string_view before = text_.substr(0, number.begin);
      for (const std::string_view currency : kCurrencies) {
        if (!found && before.ends_with(currency)) {
          number.begin -= currency.size();
          found = true;
        }
      }
      if (found || sign) continue;
      const size_t length = before.ends_with(kMinusSign) ? kMinusSign.size() : 1;
      const bool minus = before.ends_with(kMinusSign) || before.ends_with('-');
      if (!minus && !before.ends_with('+')) continue;
      const char c = before.size() == length ? '\0' : before[before.size() - length - 1];
      if (is_digit(c) || is_letter(c) || c == ')') continue;  // 7-5, x-5: an operator
      number.begin -= length;
      negative = minus;
      sign = found = true;
    }
    return negative;
  }

  // a/b behind the digits of a.
  void read_denominator(bool negative, const std::string& whole, Number& number) {
    if (char_at(at_) != '/' || !is_digit(char_at(at_ + 1))) return;
    const auto a = small_integer(whole);
    ++at_;
    const std::string below = digits(false);
    const auto b = small_integer(below);
    if (!a || !b) {
      number.value += "/" + below;
    } else if (*b != 0) {
      number.value = quotient(negative, *a, *b);
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

std::optional<Number> first_number(std::string_view text) { return Scanner(text).next(); }

std::optional<std::string> last_number(std::string_view text) {
  Scanner scanner(text);
  std::optional<std::string> last;
  while (auto number = scanner.next()) last = std::move(number->value);
  return last;
}

// A number alone, or one with words behind it.
bool is_numeric(std::string_view answer) {
  const auto number = first_number(answer);
  if (!number || number->begin != 0) return false;
  std::string_view rest = answer.substr(number->end);
  while (rest.ends_with('.') || rest.ends_with('$')) rest.remove_suffix(1);
  return rest.empty() || (rest.front() == ' ' && std::all_of(rest.begin(), rest.end(), [](char c) {
                            return c == ' ' || c == '.' || is_letter(c);
                          }));
}

std::string plain_text(std::string_view answer) {
  answer = trim(answer);
  if (answer.ends_with('.')) answer.remove_suffix(1);
  if (answer.size() >= 2 && answer.starts_with('$') && answer.ends_with('$'))
    answer = answer.substr(1, answer.size() - 2);
  std::string out;
  std::copy_if(answer.begin(), answer.end(), std::back_inserter(out),
               [](char c) { return kSpaces.find(c) == std::string_view::npos; });
  return out;
}

}  // namespace

std::optional<std::string> final_number(std::string_view text) {
  const auto answer = marked_answer(text);
  if (!answer) return last_number(text);
  auto number = first_number(*answer);
  if (!number) return std::nullopt;
  return std::move(number->value);
}

Match match_answer(std::string_view completion, std::string_view reference) {
  Match match;
  const auto marked = marked_answer(reference);
  const auto number = final_number(reference);
  if (number && (!marked || is_numeric(*marked))) {
    match.gold = *number;
    match.predicted = final_number(completion).value_or("");
  } else {
    match.gold = plain_text(marked.value_or(reference));
    match.predicted = plain_text(marked_answer(completion).value_or(completion));
  }
  match.correct = match.gold == match.predicted && !match.gold.empty();
  return match;
}

}  // namespace lazytrain::eval
