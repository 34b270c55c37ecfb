#include "text/jinja/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/jinja/unicode.h"

namespace lazytrain::text::jinja {
namespace {

void append_text_repr(std::string& out, std::string_view text, Budget& budget) {
  budget.text(text.size());
  const bool doubled = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = doubled ? '"' : '\'';
  out += quote;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t p = next_point(text, pos);
    if (p == '\n') {
      out += "\\n";
    } else if (p == '\r') {
      out += "\\r";
    } else if (p == '\t') {
      out += "\\t";
    } else if (p == '\\' || p == static_cast<char32_t>(quote)) {
      out += '\\';
      out += static_cast<char>(p);
    } else if (is_printable(p)) {
      append_point(out, p);
    } else if (p < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(p));
    } else if (p < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(p));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(p));
    }
  }
  out += quote;
}

void append_repr(std::string& out, const Value& value, Budget& budget);

void append_items(std::string& out, const Values& items, Budget& budget) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, items[i], budget);
  }
}

void append_sequence_repr(std::string& out, const Sequence& sequence, Budget& budget) {
  switch (sequence.kind) {
    case SequenceKind::kList:
      out += '[';
      append_items(out, sequence.items, budget);
      out += ']';
      return;
    case SequenceKind::kTuple:
      out += '(';
      append_items(out, sequence.items, budget);
      out += sequence.items.size() == 1 ? ",)" : ")";
      return;
    case SequenceKind::kRange:
      out += sequence.label;
      return;
    case SequenceKind::kView:
      out += sequence.label + "([";
      append_items(out, sequence.items, budget);
      out += "])";
      return;
    case SequenceKind::kIterator:
      budget.unsupported("printing a generator (put |list behind it)");
  }
}

void append_repr(std::string& out, const Value& value, Budget& budget) {
  const size_t before = out.size();
  if (value.is_string()) {
    append_text_repr(out, value.string(), budget);
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else if (value.is_none()) {
    out += "None";
  } else if (const bool* flag = value.get<bool>()) {
    out += *flag ? "True" : "False";
  } else if (const int64_t* whole = value.get<int64_t>()) {
    out += std::to_string(*whole);
  } else if (const double* number = value.get<double>()) {
    out += float_repr(*number);
  } else if (const Sequence* sequence = value.sequence()) {
    append_sequence_repr(out, *sequence, budget);
  } else if (const Dict* dict = value.dict()) {
    out += '{';
    for (size_t i = 0; i < dict->items().size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(out, dict->items()[i].first, budget);
      out += ": ";
      append_repr(out, dict->items()[i].second, budget);
    }
    out += '}';
  } else {
    budget.unsupported("printing a {}", type_name(value));
  }
  budget.tick(1 + static_cast<int64_t>(out.size() - before) / 32);
  if (out.size() > static_cast<size_t>(kMaxTextBytes)) budget.text(out.size());
}

void append_json_text(std::string& out, std::string_view text, bool ensure_ascii, Budget& budget) {
  budget.text(text.size());
  out += '"';
  for (size_t pos = 0; pos < text.size();) {
    const char32_t p = next_point(text, pos);
    switch (p) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (p < 0x20 || (ensure_ascii && p > 0x7f && p < 0x10000)) {
          out += fmt::format("\\u{:04x}", static_cast<uint32_t>(p));
        } else if (ensure_ascii && p >= 0x10000) {
          const uint32_t rest = static_cast<uint32_t>(p) - 0x10000;
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
        } else {
          append_point(out, p);
        }
    }
  }
  out += '"';
}

class JsonWriter {
 public:
  JsonWriter(std::string& out, const JsonStyle& style, Budget& budget) : out_(out), style_(style), budget_(budget) {}

  void write(const Value& value) {
    budget_.tick();
    if (out_.size() > static_cast<size_t>(kMaxTextBytes)) budget_.text(out_.size());
    const Sequence* sequence = value.sequence();
    if (value.is_string()) {
      append_json_text(out_, value.string(), style_.ensure_ascii, budget_);
    } else if (is_number(value) || value.is_none()) {
      out_ += scalar(value);
    } else if (sequence != nullptr &&
               (sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple)) {
      write_list(sequence->items);
    } else if (const Dict* dict = value.dict()) {
      write_dict(*dict);
    } else {
      budget_.fail("a value of type {} cannot be written as JSON", type_name(value));
    }
  }

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* flag = value.get<bool>()) return *flag ? "true" : "false";
    if (const int64_t* whole = value.get<int64_t>()) return std::to_string(*whole);
    const double number = to_double(value);
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return float_repr(number);
  }
  void next_line() {
    if (!style_.indented) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += style_.indent;
    budget_.text(style_.indent.size() * static_cast<size_t>(level_));
  }
  void write_list(const Values& items) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      next_line();
      write(items[i]);
    }
    --level_;
    next_line();
    out_ += ']';
  }
  void write_key(const Value& key) {
    if (!key.is_string() && !is_number(key) && !key.is_none()) {
      budget_.fail("a key of type {} cannot be written as JSON", type_name(key));
    }
    append_json_text(out_, key.is_string() ? key.string() : scalar(key), style_.ensure_ascii, budget_);
    out_ += style_.key_separator;
  }
  void write_dict(const Dict& dict) {
    if (dict.items().empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& item : dict.items()) entries.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto* a, const auto* b) { return compare(a->first, b->first, budget_) < 0; });
    }
    out_ += '{';
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      next_line();
      write_key(entries[i]->first);
      write(entries[i]->second);
    }
    --level_;
    next_line();
    out_ += '}';
  }

  std::string& out_;
  const JsonStyle& style_;
  Budget& budget_;
  int level_ = 0;
};

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  // The shortest digits that read back as the same double, as d.ddde±xx.
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  const std::string_view sign = text.starts_with('-') ? "-" : "";
  std::string digits;
  for (const char c : text.substr(sign.size(), e - sign.size())) {
    if (c != '.') digits.push_back(c);
  }
  if (exponent < -4 || exponent >= 16) {
    const std::string_view mark = digits.size() > 1 ? "." : "";
    return fmt::format("{}{}{}{}e{}{:02}", sign, digits[0], mark, digits.substr(1), exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  if (exponent < 0) return fmt::format("{}0.{}{}", sign, std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return fmt::format("{}{}{}.0", sign, digits, std::string(whole - digits.size(), '0'));
  return fmt::format("{}{}.{}", sign, digits.substr(0, whole), digits.substr(whole));
}

void append_str(std::string& out, const Value& value, Budget& budget) {
  if (value.is_string()) {
    budget.text(value.string().size());
    out += value.string();
  } else if (!value.is_undefined()) {
    append_repr(out, value, budget);
  }
  if (out.size() > static_cast<size_t>(kMaxTextBytes)) budget.text(out.size());
}

std::string repr(const Value& value, Budget& budget) {
  std::string out;
  append_repr(out, value, budget);
  return out;
}

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  std::string out;
  JsonWriter(out, style, budget).write(value);
  return out;
}

}  // namespace lazytrain::text::jinja
