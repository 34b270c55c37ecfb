// Exact match of final answers.
//
// Where the answer stands: behind the last `####` or `The answer is:` of a text (white space skipped, up to the end of
// the line); in a text without either it is the last number. The reference answer is read by the same rule.
//
// Numbers: an optional sign (-, + or the minus sign U+2212) that follows no letter, digit or `)`, an optional currency
// sign before or behind it ($ € £ ¥ ₹, also \$), digits with commas between them, decimals. Compared by value, in exact
// decimal form: commas, currency signs, leading and trailing zeros, a trailing point and a percent sign make no
// difference, so 1,234.50 is 1234.5, $18.00 is 18 and 50% is 50. a/b is the quotient (3/4 is 0.75), a/0 is a. Words
// behind a number are ignored (`18 dollars`); of several numbers behind a marker the first counts. No rounding.
//
// A reference that is no number (`x^2`, `\frac{1}{2}`) is compared as text: trimmed, without enclosing `$`, a final
// point or spaces.
//
// Differs from MetaMath's scorer, which wants `The answer is: ` and nothing else, reads 1,234,567 as 1234 and rounds to
// integers; on reference answers of GSM8K both agree.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lazytrain::eval {

struct Match {
  std::string gold;       // in the form that is compared
  std::string predicted;  // likewise, empty when the completion has no answer
  bool correct = false;
};

// Never throws; any bytes are legal.
Match match_answer(std::string_view completion, std::string_view reference);

// The number of a text's final answer in canonical decimal form ("-5", "1234.5", "1/3").
std::optional<std::string> final_number(std::string_view text);

}  // namespace lazytrain::eval
