#include "text/jinja/string_methods.h"

#include <algorithm>
#include <array>
#include <limits>

#include "text/jinja/arguments.h"
#include "text/jinja/methods.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace lazytrain::text::jinja {
namespace {

using Method = Value (*)(const std::string& name, const std::string& self, ArgReader& args, Budget& budget);

Value stripped(const std::string& name, const std::string& self, ArgReader& args, Budget& budget) {
  const std::string* chars = args.text("chars");
  args.done();
  const std::string_view set = chars != nullptr ? *chars : std::string_view();
  budget.tick(static_cast<int64_t>(self.size() / 32 * (1 + set.size() / 8)));
  const auto rest = strip(self, chars != nullptr ? &set : nullptr, name != "rstrip", name != "lstrip");
  return make_string(std::string(rest), budget);
}

Value split_at_space(const std::string& self, int64_t most, bool from_right, Budget& budget) {
  Values parts;
  std::string_view rest = strip(self, nullptr, !from_right, from_right);
  while (!rest.empty()) {
    if (static_cast<int64_t>(parts.size()) == most) {
      parts.push_back(make_string(std::string(rest), budget));
      break;
    }
    // The word at the near end, then what is left of the text.
    size_t begin = 0;
    size_t end = rest.size();
    if (from_right) {
      begin = rest.size();
      while (begin > 0) {
        size_t start = begin - 1;
        while (start > 0 && (static_cast<unsigned char>(rest[start]) & 0xc0) == 0x80) --start;
        size_t next = start;
        if (is_space(next_point(rest, next))) break;
        begin = start;
      }
      parts.push_back(make_string(std::string(rest.substr(begin)), budget));
      rest = strip(rest.substr(0, begin), nullptr, false, true);
    } else {
      for (size_t pos = 0; pos < rest.size();) {
        const size_t start = pos;
        if (is_space(next_point(rest, pos))) {
          end = start;
          break;
        }
      }
      parts.push_back(make_string(std::string(rest.substr(0, end)), budget));
      rest = strip(rest.substr(end), nullptr, true, false);
    }
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return make_list(std::move(parts), budget);
}

Value split(const std::string& name, const std::string& self, ArgReader& args, Budget& budget) {
  const std::string* separator = args.text("sep");
  int64_t most = args.integer("maxsplit", -1);
  args.done();
  budget.text(self.size());
  if (most < 0) most = std::numeric_limits<int64_t>::max();
  const bool from_right = name == "rsplit";
  if (separator == nullptr) return split_at_space(self, most, from_right, budget);
  if (separator->empty()) budget.fail("{}: empty separator", name);
  Values parts;
  std::string_view rest = self;
  while (static_cast<int64_t>(parts.size()) < most) {
    const size_t at = from_right ? rest.rfind(*separator) : rest.find(*separator);
    if (at == std::string_view::npos) break;
    const std::string_view before = rest.substr(0, at);
    const std::string_view behind = rest.substr(at + separator->size());
    parts.push_back(make_string(std::string(from_right ? behind : before), budget));
    rest = from_right ? before : behind;
  }
  parts.push_back(make_string(std::string(rest), budget));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return make_list(std::move(parts), budget);
}

Value starts_or_ends(const std::string& name, const std::string& self, ArgReader& args, Budget& budget) {
  const Value& wanted = args.required("prefix");
  args.done();
  const auto matches = [&](const Value& v) {
    if (!v.is_string()) budget.fail("{} needs a string or a tuple of strings, not {}", name, type_name(v));
    budget.text(v.string().size());
    return name == "startswith" ? self.starts_with(v.string()) : self.ends_with(v.string());
  };
  const Sequence* tuple = wanted.sequence();
  if (tuple == nullptr || tuple->kind != SequenceKind::kTuple) return Value(matches(wanted));
  return Value(std::any_of(tuple->items.begin(), tuple->items.end(), matches));
}

Value replace(const std::string&, const std::string& self, ArgReader& args, Budget& budget) {
  const std::string* from = args.text("old");
  const std::string* to = args.text("new");
  const int64_t count = args.integer("count", -1);
  args.done();
  if (from == nullptr || to == nullptr) budget.fail("replace needs two strings");
  return make_string(replace_all(self, *from, *to, count, budget), budget);
}

Value cased(const std::string& name, const std::string& self, ArgReader& args, Budget& budget) {
  args.done();
  budget.text(self.size());
  if (name == "upper") return make_string(upper(self), budget);
  if (name == "lower") return make_string(lower(self), budget);
  return make_string(name == "title" ? title(self) : capitalize(self), budget);
}

Value find(const std::string& name, const std::string& self, ArgReader& args, Budget& budget) {
  const std::string* wanted = args.text("sub");
  args.done();
  if (wanted == nullptr) budget.fail("{} needs a string", name);
  budget.text(self.size());
  const size_t at = name.front() == 'r' ? self.rfind(*wanted) : self.find(*wanted);
  if (at != std::string::npos) return Value(point_count(std::string_view(self).substr(0, at)));
  if (name.ends_with("index")) budget.fail("substring not found");
  return Value(int64_t{-1});
}

Value count(const std::string&, const std::string& self, ArgReader& args, Budget& budget) {
  const std::string* wanted = args.text("sub");
  args.done();
  if (wanted == nullptr) budget.fail("count needs a string");
  budget.text(self.size());
  if (wanted->empty()) return Value(point_count(self) + 1);
  int64_t found = 0;
  for (size_t at = self.find(*wanted); at != std::string::npos; at = self.find(*wanted, at + wanted->size())) ++found;
  return Value(found);
}

Value join(const std::string&, const std::string& self, ArgReader& args, Budget& budget) {
  const Values items = iterate(args.required("iterable"), budget);
  args.done();
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) budget.fail("join: item {} is {}, not a string", i, type_name(items[i]));
    if (i > 0) out += self;
    out += items[i].string();
    if (out.size() > static_cast<size_t>(kMaxTextBytes)) budget.text(out.size());
  }
  return make_string(std::move(out), budget);
}

// The questions that hold when every code point answers yes and there is one.
Value all_points(const std::string& name, const std::string& self, ArgReader& args, Budget& budget) {
  args.done();
  budget.text(self.size());
  const std::u32string points = to_points(self);
  const auto test = [&](char32_t p) {
    if (name == "isdigit" || name == "isdecimal") return is_decimal(p);
    if (name == "isspace") return is_space(p);
    if (name == "isalpha") return is_alpha(p);
    return is_alpha(p) || is_decimal(p);  // isalnum
  };
  return Value(!points.empty() && std::all_of(points.begin(), points.end(), test));
}

// All cased code points are of this case, and there is one.
Value all_cased(const std::string& name, const std::string& self, ArgReader& args, Budget& budget) {
  args.done();
  budget.text(self.size());
  bool some = false;
  for (const char32_t p : to_points(self)) {
    if (name == "isupper" ? is_lower(p) : is_upper(p)) return Value(false);
    some = some || (name == "isupper" ? is_upper(p) : is_lower(p));
  }
  return Value(some);
}

Value remove_affix(const std::string& name, const std::string& self, ArgReader& args, Budget& budget) {
  const std::string* affix = args.text("affix");
  args.done();
  if (affix == nullptr) budget.fail("{} needs a string", name);
  std::string_view rest = self;
  if (name == "removeprefix" && rest.starts_with(*affix)) rest.remove_prefix(affix->size());
  if (name == "removesuffix" && rest.ends_with(*affix)) rest.remove_suffix(affix->size());
  return make_string(std::string(rest), budget);
}

Value partition(const std::string& name, const std::string& self, ArgReader& args, Budget& budget) {
  const std::string* separator = args.text("sep");
  args.done();
  if (separator == nullptr || separator->empty()) budget.fail("{}: empty separator", name);
  budget.text(self.size());
  const bool from_right = name == "rpartition";
  const size_t at = from_right ? self.rfind(*separator) : self.find(*separator);
  if (at == std::string::npos) {
    if (from_right) return make_tuple({Value(""), Value(""), Value(self)}, budget);
    return make_tuple({Value(self), Value(""), Value("")}, budget);
  }
  return make_tuple({Value(self.substr(0, at)), Value(*separator), Value(self.substr(at + separator->size()))}, budget);
}

Value lines(const std::string&, const std::string& self, ArgReader& args, Budget& budget) {
  const bool keep_ends = args.boolean("keepends", false);
  args.done();
  return make_list(split_lines(self, keep_ends, budget), budget);
}

Value padded(const std::string& name, const std::string& self, ArgReader& args, Budget& budget) {
  const int64_t width = args.integer("width", 0);
  const std::string* given = name == "zfill" ? nullptr : args.text("fillchar");
  args.done();
  const std::string fill = name == "zfill" ? "0" : given != nullptr ? *given : " ";
  if (point_count(fill) != 1) budget.fail("{}: the fill must be one character", name);
  const int64_t missing = width - point_count(self);
  if (missing <= 0) return Value(self);
  if (missing > kMaxTextBytes / 4) budget.text(static_cast<size_t>(kMaxTextBytes) + 1);
  const auto pad = [&](int64_t times) {
    std::string out;
    for (int64_t i = 0; i < times; ++i) out += fill;
    return out;
  };
  if (name == "ljust") return make_string(self + pad(missing), budget);
  if (name == "center") {
    const int64_t left = missing / 2 + (missing & width & 1);
    return make_string(pad(left) + self + pad(missing - left), budget);
  }
  const size_t sign = name == "zfill" && !self.empty() && (self[0] == '-' || self[0] == '+') ? 1 : 0;
  return make_string(self.substr(0, sign) + pad(missing) + self.substr(sign), budget);
}

struct Entry {
  std::string_view name;
  Method method;
};

constexpr std::array kMethods = {
    Entry{"strip", stripped},
    Entry{"lstrip", stripped},
    Entry{"rstrip", stripped},
    Entry{"split", split},
    Entry{"rsplit", split},
    Entry{"startswith", starts_or_ends},
    Entry{"endswith", starts_or_ends},
    Entry{"replace", replace},
    Entry{"upper", cased},
    Entry{"lower", cased},
    Entry{"title", cased},
    Entry{"capitalize", cased},
    Entry{"find", find},
    Entry{"rfind", find},
    Entry{"index", find},
    Entry{"rindex", find},
    Entry{"count", count},
    Entry{"join", join},
    Entry{"isdigit", all_points},
    Entry{"isdecimal", all_points},
    Entry{"isspace", all_points},
    Entry{"isalpha", all_points},
    Entry{"isalnum", all_points},
    Entry{"isupper", all_cased},
    Entry{"islower", all_cased},
    Entry{"removeprefix", remove_affix},
    Entry{"removesuffix", remove_affix},
    Entry{"partition", partition},
    Entry{"rpartition", partition},
    Entry{"splitlines", lines},
    Entry{"zfill", padded},
    Entry{"ljust", padded},
    Entry{"rjust", padded},
    Entry{"center", padded},
};

constexpr std::array<std::string_view, 12> kForeign = {"casefold",    "encode",  "expandtabs",   "format",
                                                       "format_map",  "isascii", "isidentifier", "isnumeric",
                                                       "isprintable", "istitle", "swapcase",     "translate"};

// The length of the line end at `pos` of `text`, 0 where none is.
size_t line_end_at(std::string_view text, size_t pos) {
  const auto c = static_cast<unsigned char>(text[pos]);
  if (c == '\r') return pos + 1 < text.size() && text[pos + 1] == '\n' ? 2 : 1;
  if ((c >= 10 && c <= 12) || (c >= 28 && c <= 30)) return 1;
  size_t next = pos;
  const char32_t point = c < 0x80 ? c : next_point(text, next);
  return point == 0x85 || point == 0x2028 || point == 0x2029 ? next - pos : 0;
}

}  // namespace

bool is_string_method(std::string_view name) {
  return std::any_of(kMethods.begin(), kMethods.end(), [&](const Entry& e) { return e.name == name; });
}

bool is_foreign_string_method(std::string_view name) {
  return std::find(kForeign.begin(), kForeign.end(), name) != kForeign.end();
}

Value call_string_method(const std::string& name, const Value& self, Args& args, Budget& budget) {
  const auto* entry = std::find_if(kMethods.begin(), kMethods.end(), [&](const Entry& e) { return e.name == name; });
  ArgReader reader(name, args, budget);
  return entry->method(name, self.string(), reader, budget);
}

Values split_lines(const std::string& text, bool keep_ends, Budget& budget) {
  budget.text(text.size());
  Values out;
  size_t start = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = line_end_at(text, pos);
    if (end == 0) {
      next_point(text, pos);
      continue;
    }
    out.push_back(make_string(text.substr(start, pos - start + (keep_ends ? end : 0)), budget));
    pos += end;
    start = pos;
  }
  if (start < text.size()) out.push_back(make_string(text.substr(start), budget));
  return out;
}

std::string replace_all(const std::string& text, const std::string& from, const std::string& to, int64_t count,
                        Budget& budget) {
  budget.text(text.size());
  if (count < 0) count = std::numeric_limits<int64_t>::max();
  std::string out;
  size_t pos = 0;
  for (; count > 0; --count) {
    if (out.size() > static_cast<size_t>(kMaxTextBytes)) budget.text(out.size());
    if (from.empty()) {  // Python puts `to` before every code point and at the end
      out += to;
      if (pos >= text.size()) break;
      const size_t start = pos;
      next_point(text, pos);
      out.append(text, start, pos - start);
      continue;
    }
    const size_t at = text.find(from, pos);
    if (at == std::string::npos) break;
    out.append(text, pos, at - pos);
    out += to;
    pos = at + from.size();
  }
  if (pos < text.size()) out.append(text, pos);
  return out;
}

}  // namespace lazytrain::text::jinja
