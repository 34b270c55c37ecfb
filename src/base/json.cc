#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/file.h"

namespace lazytrain {
namespace {

constexpr int kMaxDepth = 256;

// Builds the document while checking what nlohmann's own parser lets pass: depth and duplicate keys.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, std::string_view where) : text_(text), where_(where) {}
  Json take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(number_integer_t v) override { return put(v); }
  bool number_unsigned(number_unsigned_t v) override { return put(v); }
  bool number_float(number_float_t v, const string_t&) override { return put(v); }
  bool string(string_t& v) override { return put(std::move(v)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& k) override {
    if (!keys_.back().insert(k).second) {
      throw InputError("{}: the key \"{}\" stands twice in one object", where_, shown(k));
    }
    key_ = std::move(k);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    std::string_view reason = e.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    if (const auto colon = reason.find(": "); colon != std::string_view::npos) reason.remove_prefix(colon + 2);
    fail(position, reason);
  }
  // `position` is the number of bytes up to and with the offending one, as the parser counts.
  [[noreturn]] void fail(size_t position, std::string_view reason) const {
    position = std::min(position, text_.size());
    const auto before = text_.substr(0, position);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const auto line_start = before.rfind('\n');
    const auto column = line_start == std::string_view::npos ? position : position - line_start - 1;
    throw InputError("{}: line {}, column {}: not valid JSON: {}", where_, line, column, shown(reason, 200));
  }

 private:
  template <typename V>
  bool put(V&& value) {
    add(Json(std::forward<V>(value)));
    return true;
  }
  Json* add(Json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (stack_.back()->is_array()) {
      stack_.back()->push_back(std::move(value));
      return &stack_.back()->back();
    }
    // Appends without the linear search of ordered_map::operator[]: the key is known to be new.
    auto& map = stack_.back()->get_ref<Json::object_t&>();
    map.Container::emplace_back(std::move(key_), std::move(value));
    return &map.Container::back().second;
  }
  bool open(Json value) {
    if (stack_.size() >= kMaxDepth) throw InputError("{}: nested more than {} levels deep", where_, kMaxDepth);
    stack_.push_back(add(std::move(value)));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    stack_.pop_back();
    keys_.pop_back();
    return true;
  }

  std::string_view text_, where_;
  Json root_;
  std::vector<Json*> stack_;
  std::vector<std::set<std::string>> keys_;
  std::string key_;
};

}  // namespace

Json parse_json(std::string_view text, std::string_view where) {
  Builder builder(text, where);
  // The parser takes a NUL for the end of the text, and would not look at what follows.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) builder.fail(nul + 1, "a NUL byte");
  Json::sax_parse(text, &builder);
  return builder.take();
}

Json read_json(const std::filesystem::path& path, int64_t limit) {
  return parse_json(read_file(path, limit), path.string());
}

JsonObject::JsonObject(const Json& object, std::string where) : object_(&object), where_(std::move(where)) {
  if (!object.is_object()) throw InputError("{}: expected a JSON object, found {}", where_, object.type_name());
}

bool JsonObject::has(std::string_view key) const {
  const auto it = object_->find(key);
  return it != object_->end() && !it->is_null();
}

const Json& JsonObject::at(std::string_view key) const {
  const auto it = object_->find(key);
  if (it == object_->end() || it->is_null()) throw InputError("{}: the key \"{}\" is missing", where_, key);
  return *it;
}

void JsonObject::mistyped(std::string_view key, std::string_view expected) const {
  throw InputError("{}: \"{}\" is {}, expected {}", where_, key, shown(at(key).dump(), 80), expected);
}

int64_t JsonObject::integer(std::string_view key, int64_t min, int64_t max) const {
  const Json& value = at(key);
  const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                                               : value.is_number_integer();
  if (!fits || value.get<int64_t>() < min || value.get<int64_t>() > max) {
    mistyped(key, fmt::format("a whole number from {} to {}", min, max));
  }
  return value.get<int64_t>();
}

int64_t JsonObject::integer_or(std::string_view key, int64_t otherwise, int64_t min, int64_t max) const {
  return has(key) ? integer(key, min, max) : otherwise;
}

double JsonObject::number(std::string_view key) const {
  if (!at(key).is_number() || !std::isfinite(at(key).get<double>())) mistyped(key, "a finite number");
  return at(key).get<double>();
}

double JsonObject::number_or(std::string_view key, double otherwise) const {
  return has(key) ? number(key) : otherwise;
}

bool JsonObject::boolean_or(std::string_view key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!at(key).is_boolean()) mistyped(key, "true or false");
  return at(key).get<bool>();
}

std::string JsonObject::string(std::string_view key) const {
  if (!at(key).is_string()) mistyped(key, "a string");
  return at(key).get<std::string>();
}

std::string JsonObject::string_or(std::string_view key, std::string_view otherwise) const {
  return has(key) ? string(key) : std::string(otherwise);
}

JsonObject JsonObject::object(std::string_view key) const {
  if (!at(key).is_object()) mistyped(key, "an object");
  return {at(key), fmt::format("{}: {}", where_, key)};
}

std::string shown(std::string_view text, size_t limit) {
  std::string out;
  size_t end = std::min(text.size(), limit);
  while (end < text.size() && end > 0 && (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80) --end;
  for (const char c : text.substr(0, end)) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return end < text.size() ? out + "..." : out;
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    std::vector<size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t substituted = diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace lazytrain
