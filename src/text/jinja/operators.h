// Python's operators on values.
#pragma once

#include <string_view>

#include "text/jinja/value.h"

namespace lazytrain::text::jinja {

Value binary_operator(std::string_view op, const Value& a, const Value& b, Budget& budget);  // + - * / // % ** ~
Value unary_operator(std::string_view op, const Value& a, Budget& budget);                   // + - not
bool compare_operator(std::string_view op, const Value& a, const Value& b,
                      Budget& budget);  // == != < <= > >= in, not in
// value[begin:end:step] of strings, lists and tuples; bounds may be null.
Value slice(const Value& value, const Value* begin, const Value* end, const Value* step, Budget& budget);
[[noreturn]] void fail_undefined(const Value& value, const Budget& budget);

}  // namespace lazytrain::text::jinja
