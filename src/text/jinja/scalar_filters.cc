#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/jinja/filter_tables.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace lazytrain::text::jinja {
namespace {

Value trim(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  ArgReader reader(name, args, runtime.budget());
  const std::string* chars = reader.text("chars");
  reader.done();
  const std::string text = str(value, runtime.budget());
  const std::string_view set = chars != nullptr ? *chars : std::string_view();
  return Value(std::string(strip(text, chars != nullptr ? &set : nullptr, true, true)));
}

Value cased(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  ArgReader(name, args, runtime.budget()).done();
  const std::string text = str(value, runtime.budget());
  return Value(name == "upper" ? upper(text) : name == "lower" ? lower(text) : capitalize(text));
}

// Jinja's own title: words begin behind white space, hyphens and opening brackets, not behind an apostrophe.
Value titled(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  ArgReader(name, args, runtime.budget()).done();
  const std::string text = str(value, runtime.budget());
  std::string out;
  std::string word;
  const auto flush = [&] {
    size_t pos = 0;
    if (!word.empty()) next_point(word, pos);
    out += upper(word.substr(0, pos)) + lower(word.substr(pos));
    word.clear();
  };
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    const char32_t p = next_point(text, pos);
    if (is_space(p) || p == '-' || p == '(' || p == '{' || p == '[' || p == '<') {
      flush();
      out.append(text, start, pos - start);
    } else {
      word.append(text, start, pos - start);
    }
  }
  flush();
  return make_string(std::move(out), runtime.budget());
}

Value replace(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  Budget& budget = runtime.budget();
  ArgReader reader(name, args, budget);
  const std::string from = str(reader.required("old"), budget);
  const std::string to = str(reader.required("new"), budget);
  const Value* count = reader.optional("count");
  reader.done();
  int64_t most = -1;
  if (count != nullptr && !count->is_none() && !to_integer(*count, most))
    budget.fail("replace: count must be a number");
  return make_string(replace_all(str(value, budget), from, to, most, budget), budget);
}

Value indent(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  Budget& budget = runtime.budget();
  ArgReader reader(name, args, budget);
  const Value* width = reader.optional("width");
  const bool first = reader.boolean("first", false);
  const bool blank = reader.boolean("blank", false);
  reader.done();
  int64_t spaces = 4;
  std::string margin;
  if (width != nullptr && width->is_string()) {
    margin = width->string();
  } else {
    if (width != nullptr && !to_integer(*width, spaces)) budget.fail("indent: width must be a number or a string");
    if (spaces > kMaxTextBytes / 4) budget.text(static_cast<size_t>(kMaxTextBytes) + 1);
    margin.assign(static_cast<size_t>(std::max<int64_t>(spaces, 0)), ' ');
  }
  const Values lines = split_lines(str(value, budget) + "\n", false, budget);
  std::string out = first ? margin : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i].string();
    if (i > 0) out += '\n';
    if (i > 0 && (blank || !line.empty())) out += margin;
    out += line;
    if (out.size() > static_cast<size_t>(kMaxTextBytes)) budget.text(out.size());
  }
  return make_string(std::move(out), budget);
}

Value escape(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  ArgReader(name, args, runtime.budget()).done();
  std::string out;
  for (const char c : str(value, runtime.budget())) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return make_string(std::move(out), runtime.budget());
}

Value as_string(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  ArgReader(name, args, runtime.budget()).done();
  return value.is_string() ? value : make_string(str(value, runtime.budget()), runtime.budget());
}

// float() of a text as Python reads it; false when it is no number.
bool read_float(std::string_view text, double& out) {
  const std::string trimmed(strip(text, nullptr, true, true));
  if (trimmed.empty() || trimmed.find_first_of("xXpP(") != std::string::npos) return false;
  char* end = nullptr;
  out = std::strtod(trimmed.c_str(), &end);
  return end == trimmed.c_str() + trimmed.size();
}

bool read_integer(std::string_view text, int base, int64_t& out) {
  text = strip(text, nullptr, true, true);
  if (text.starts_with("+") && !text.starts_with("+-")) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

Value as_int(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  Budget& budget = runtime.budget();
  ArgReader reader(name, args, budget);
  const Value* otherwise = reader.optional("default");
  const int64_t base = reader.integer("base", 10);
  reader.done();
  if (base < 2 || base > 36) budget.fail("int: the base must be from 2 to 36");
  if (value.is_undefined()) fail_undefined(value, budget);
  int64_t whole = 0;
  double number = 0;
  if (to_integer(value, whole)) return Value(whole);
  bool known = value.get<double>() != nullptr;
  if (known) number = to_double(value);
  if (value.is_string()) {
    if (read_integer(value.string(), static_cast<int>(base), whole)) return Value(whole);
    known = read_float(value.string(), number);
  }
  if (known && std::fabs(number) < 9.2e18) return Value(static_cast<int64_t>(number));
  return otherwise != nullptr ? *otherwise : Value(int64_t{0});
}

Value as_float(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  ArgReader reader(name, args, runtime.budget());
  const Value* otherwise = reader.optional("default");
  reader.done();
  if (value.is_undefined()) fail_undefined(value, runtime.budget());
  double number = 0;
  if (is_number(value)) return Value(to_double(value));
  if (value.is_string() && read_float(value.string(), number)) return Value(number);
  return otherwise != nullptr ? *otherwise : Value(0.0);
}

Value absolute(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  ArgReader(name, args, runtime.budget()).done();
  if (!is_number(value)) runtime.budget().fail("abs needs a number, not '{}'", type_name(value));
  const bool negative = to_double(value) < 0;
  return unary_operator(negative ? "-" : "+", value, runtime.budget());
}

Value rounded(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  Budget& budget = runtime.budget();
  ArgReader reader(name, args, budget);
  const int64_t precision = reader.integer("precision", 0);
  const std::string* method = reader.text("method");
  reader.done();
  if (!is_number(value)) budget.fail("round needs a number, not '{}'", type_name(value));
  if (precision < 0 || precision > 15) budget.unsupported("rounding to {} digits", precision);
  const double number = to_double(value);
  const bool common = method == nullptr || *method == "common";
  if (!common && *method != "ceil" && *method != "floor") budget.fail("round: method must be common, ceil or floor");
  if (common) {
    if (!value.get<double>()) return value;  // round() of an int is that int
    // Printing rounds the exact binary value half to even, as Python's round does.
    return Value(std::strtod(fmt::format("{:.{}f}", number, precision).c_str(), nullptr));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  return Value((*method == "ceil" ? std::ceil(number * scale) : std::floor(number * scale)) / scale);
}

Value otherwise(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  ArgReader reader(name, args, runtime.budget());
  const Value* given = reader.optional("default_value");
  const bool falsy_too = reader.boolean("boolean", false);
  reader.done();
  if (!value.is_undefined() && !(falsy_too && !truthy(value))) return value;
  return given != nullptr ? *given : Value("");
}

Value tojson(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  Budget& budget = runtime.budget();
  ArgReader reader(name, args, budget);
  JsonStyle style;
  style.ensure_ascii = reader.boolean("ensure_ascii", false);
  const Value* indent = reader.optional("indent");
  const Value* separators = reader.optional("separators");
  style.sort_keys = reader.boolean("sort_keys", false);
  reader.done();
  if (indent != nullptr && !indent->is_none()) {
    int64_t width = 0;
    if (!indent->is_string() && !to_integer(*indent, width)) budget.fail("tojson: indent must be a number or a string");
    if (width > 1000) budget.fail("tojson: an indent of {}", width);
    style.indented = true;
    style.indent =
        indent->is_string() ? indent->string() : std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    style.item_separator = std::string(",");  // assigned whole: g++ 12 warns of an overflow that is none otherwise
  }
  if (separators != nullptr && !separators->is_none()) {
    const Values both = iterate(*separators, budget);
    if (both.size() != 2 || !both[0].is_string() || !both[1].is_string())
      budget.fail("tojson: separators are two strings");
    style.item_separator = both[0].string();
    style.key_separator = both[1].string();
  }
  return make_string(to_json(value, style, budget), budget);
}

constexpr FilterEntry kFilters[] = {
    {"trim", trim},         {"upper", cased},   {"lower", cased},    {"capitalize", cased}, {"title", titled},
    {"replace", replace},   {"indent", indent}, {"escape", escape},  {"e", escape},         {"string", as_string},
    {"safe", as_string},    {"int", as_int},    {"float", as_float}, {"abs", absolute},     {"round", rounded},
    {"default", otherwise}, {"d", otherwise},   {"tojson", tojson},
};

}  // namespace

std::span<const FilterEntry> scalar_filters() { return kFilters; }

}  // namespace lazytrain::text::jinja
