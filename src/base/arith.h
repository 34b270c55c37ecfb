// Integer arithmetic that is checked by name. Sizes are int64_t everywhere.
#pragma once

#include <cstdint>
#include <limits>

#include "base/error.h"

namespace lazytrain {

constexpr int64_t div_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t align_up(int64_t value, int64_t alignment) { return div_ceil(value, alignment) * alignment; }

// a / b where b must divide a; `what` names the quotient in the error.
inline int64_t div_exact(int64_t a, int64_t b, const char* what) {
  if (b <= 0 || a % b != 0) throw UsageError("{}: {} is not a multiple of {}", what, a, b);
  return a / b;
}

// False when the product of two non-negative numbers leaves int64_t.
[[nodiscard]] inline bool checked_mul(int64_t a, int64_t b, int64_t& out) {
  return !__builtin_mul_overflow(a, b, &out);
}
[[nodiscard]] inline bool checked_add(int64_t a, int64_t b, int64_t& out) {
  return !__builtin_add_overflow(a, b, &out);
}

}  // namespace lazytrain
