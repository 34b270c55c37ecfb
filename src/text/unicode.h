// Character classes at the Unicode version of the reference's regex engine (16.0), which decides over ids at the edges.
#pragma once

#include <cstdint>

namespace lazytrain::text {

enum CharClass : uint8_t {
  kOther = 0,
  kLetter = 1,   // L
  kMark = 2,     // M
  kNumber = 4,   // N
  kSpace = 8,    // White_Space
  kNewline = 16  // CR and LF, which are white space too
};

uint8_t char_class(char32_t code_point);

// What the Digits step calls a number: N of Unicode 17.0, from another library of the reference.
bool is_digit_step_number(char32_t code_point);

}  // namespace lazytrain::text
