#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace lazytrain::text::jinja {
namespace {

[[noreturn]] void mismatch(std::string_view op, const Value& a, const Value& b, Budget& budget) {
  if (a.is_undefined()) fail_undefined(a, budget);
  if (b.is_undefined()) fail_undefined(b, budget);
  budget.fail("'{}' does not join '{}' and '{}'", op, type_name(a), type_name(b));
}

[[noreturn]] void overflow(const Budget& budget) { budget.fail("a whole number needs more than 64 bits"); }

int64_t floor_div(int64_t a, int64_t b) { return a / b - ((a % b != 0 && (a % b < 0) != (b < 0)) ? 1 : 0); }

int64_t integer_power(int64_t base, int64_t exponent, const Budget& budget) {
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  int64_t out = 1;  // the base is at least 2 in size: 64 rounds leave 64 bits
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(out, base, &out)) overflow(budget);
  }
  return out;
}

Value integer_operator(std::string_view op, int64_t a, int64_t b, const Budget& budget) {
  int64_t out = 0;
  bool over = false;
  if (op == "+") {
    over = __builtin_add_overflow(a, b, &out);
  } else if (op == "-") {
    over = __builtin_sub_overflow(a, b, &out);
  } else if (op == "*") {
    over = __builtin_mul_overflow(a, b, &out);
  } else if (op == "**") {
    if (b < 0) return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
    out = integer_power(a, b, budget);
  } else {
    if (b == 0) budget.fail("division by zero");
    if (op == "/") return Value(static_cast<double>(a) / static_cast<double>(b));
    if (b == -1) {  // the one quotient that may leave 64 bits
      over = op == "//" && __builtin_sub_overflow(int64_t{0}, a, &out);
    } else {
      out = op == "//" ? floor_div(a, b) : a - floor_div(a, b) * b;
    }
  }
  if (over) overflow(budget);
  return Value(out);
}

Value float_operator(std::string_view op, double a, double b, const Budget& budget) {
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "**") return Value(std::pow(a, b));
  if (b == 0) budget.fail("division by zero");
  if (op == "/") return Value(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (op == "%") return Value(rest == 0 ? std::copysign(0.0, b) : rest);
  return Value(std::round((a - rest) / b));
}

Value repeat(const Value& value, int64_t times, Budget& budget) {
  times = std::max<int64_t>(times, 0);
  if (value.is_string()) {
    const std::string& text = value.string();
    if (text.empty() || times == 0) return Value("");
    if (times > kMaxTextBytes / static_cast<int64_t>(text.size())) budget.text(static_cast<size_t>(kMaxTextBytes) + 1);
    std::string out;
    for (int64_t i = 0; i < times; ++i) out += text;
    return make_string(std::move(out), budget);
  }
  const Sequence& sequence = *value.sequence();
  if (!sequence.items.empty()) budget.tick(std::min(times, kMaxSteps) * static_cast<int64_t>(sequence.items.size()));
  Values out;
  for (int64_t i = 0; i < times && !sequence.items.empty(); ++i) {
    out.insert(out.end(), sequence.items.begin(), sequence.items.end());
  }
  return make_sequence(sequence.kind, std::move(out), budget);
}

bool is_list_or_tuple(const Value& value) {
  const Sequence* sequence = value.sequence();
  return sequence != nullptr && (sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple);
}

int64_t slice_bound(const Value* bound, int64_t otherwise, int64_t length, int64_t low, int64_t high, Budget& budget) {
  if (bound == nullptr || bound->is_none()) return otherwise;
  int64_t index = 0;
  if (!to_integer(*bound, index)) budget.fail("a slice needs whole numbers, not '{}'", type_name(*bound));
  if (index < 0) index = std::max(index + length, low);
  return std::clamp(index, low, high);
}

}  // namespace

void fail_undefined(const Value& value, const Budget& budget) {
  const auto& hint = value.get<UndefinedTag>()->hint;
  budget.fail("{}", hint ? *hint : "an undefined value is used");
}

Value binary_operator(std::string_view op, const Value& a, const Value& b, Budget& budget) {
  if (op == "~") {
    std::string out = str(a, budget);
    append_str(out, b, budget);
    return make_string(std::move(out), budget);
  }
  int64_t x = 0;
  int64_t y = 0;
  const bool a_whole = to_integer(a, x);
  const bool b_whole = to_integer(b, y);
  if (a_whole && b_whole) return integer_operator(op, x, y, budget);
  if (is_number(a) && is_number(b)) return float_operator(op, to_double(a), to_double(b), budget);
  if (op == "+") {
    if (a.is_string() && b.is_string()) {
      budget.text(a.string().size() + b.string().size());
      return Value(a.string() + b.string());
    }
    if (is_list_or_tuple(a) && is_list_or_tuple(b) && a.sequence()->kind == b.sequence()->kind) {
      Values out = a.sequence()->items;
      out.insert(out.end(), b.sequence()->items.begin(), b.sequence()->items.end());
      return make_sequence(a.sequence()->kind, std::move(out), budget);
    }
  }
  if (op == "*") {
    if (b_whole && (a.is_string() || is_list_or_tuple(a))) return repeat(a, y, budget);
    if (a_whole && (b.is_string() || is_list_or_tuple(b))) return repeat(b, x, budget);
  }
  if (op == "%" && a.is_string()) budget.unsupported("formatting a string with %");
  mismatch(op, a, b, budget);
}

Value unary_operator(std::string_view op, const Value& a, Budget& budget) {
  if (op == "not") return Value(!truthy(a));
  int64_t whole = 0;
  if (to_integer(a, whole)) {
    if (op == "+") return Value(whole);
    if (__builtin_sub_overflow(int64_t{0}, whole, &whole)) overflow(budget);
    return Value(whole);
  }
  if (const double* number = a.get<double>()) return Value(op == "-" ? -*number : *number);
  if (a.is_undefined()) fail_undefined(a, budget);
  budget.fail("'{}' does not go before '{}'", op, type_name(a));
}

bool compare_operator(std::string_view op, const Value& a, const Value& b, Budget& budget) {
  if (op == "==") return equal(a, b, budget);
  if (op == "!=") return !equal(a, b, budget);
  if (op == "in") return contains(b, a, budget);
  if (op == "not in") return !contains(b, a, budget);
  if (a.is_undefined()) fail_undefined(a, budget);
  if (b.is_undefined()) fail_undefined(b, budget);
  if (is_number(a) && is_number(b) && (std::isnan(to_double(a)) || std::isnan(to_double(b)))) return false;
  const int order = compare(a, b, budget);
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  return op == ">" ? order > 0 : order >= 0;
}

Value slice(const Value& value, const Value* begin, const Value* end, const Value* step, Budget& budget) {
  if (value.is_undefined()) fail_undefined(value, budget);
  const Sequence* sequence = value.sequence();
  const bool sliceable = is_list_or_tuple(value) || (sequence != nullptr && sequence->kind == SequenceKind::kRange);
  if (!value.is_string() && !sliceable) budget.fail("'{}' object cannot be sliced", type_name(value));
  std::u32string points;
  if (value.is_string()) {
    budget.text(value.string().size());
    points = to_points(value.string());
  }
  const auto length = static_cast<int64_t>(value.is_string() ? points.size() : sequence->items.size());
  int64_t stride = 1;
  if (step != nullptr && !step->is_none() && (!to_integer(*step, stride) || stride == 0)) {
    budget.fail("the step of a slice must be a whole number other than 0");
  }
  // As slice.indices() of Python: backwards the bounds run from length - 1 to -1.
  const int64_t low = stride > 0 ? 0 : -1;
  const int64_t high = stride > 0 ? length : length - 1;
  const int64_t from = slice_bound(begin, stride > 0 ? low : high, length, low, high, budget);
  const int64_t to = slice_bound(end, stride > 0 ? high : low, length, low, high, budget);
  stride = std::clamp(stride, -length - 1, length + 1);
  std::u32string text;
  Values items;
  for (int64_t i = from; stride > 0 ? i < to : i > to; i += stride) {
    if (value.is_string()) {
      text += points[static_cast<size_t>(i)];
    } else {
      items.push_back(sequence->items[static_cast<size_t>(i)]);
    }
  }
  if (value.is_string()) return make_string(from_points(text), budget);
  if (sequence->kind == SequenceKind::kRange) budget.unsupported("a slice of a range");
  return make_sequence(sequence->kind, std::move(items), budget);
}

}  // namespace lazytrain::text::jinja
