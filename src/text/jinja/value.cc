#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja/unicode.h"

namespace lazytrain::text::jinja {
namespace {

constexpr size_t kIndexFrom = 8;  // smaller dicts are searched from the front

// One text for all keys that Python holds equal (1, 1.0 and True). False when the key cannot be hashed.
bool append_key(const Value& key, std::string& out) {
  int64_t whole = 0;
  if (key.is_string()) {
    out += 's' + std::to_string(key.string().size()) + ':' + key.string();
  } else if (to_integer(key, whole)) {
    out += 'i' + std::to_string(whole) + ';';
  } else if (const double* number = key.get<double>()) {
    if (*number == std::floor(*number) && std::fabs(*number) < 9e18) {
      out += 'i' + std::to_string(static_cast<int64_t>(*number)) + ';';
    } else {
      out += fmt::format("f{:a};", *number);
    }
  } else if (key.is_none()) {
    out += 'n';
  } else if (const Sequence* tuple = key.sequence(); tuple != nullptr && tuple->kind == SequenceKind::kTuple) {
    out += 't' + std::to_string(tuple->items.size()) + '(';
    return std::all_of(tuple->items.begin(), tuple->items.end(), [&](const Value& v) { return append_key(v, out); });
  } else {
    return false;
  }
  return true;
}

int compare_numbers(const Value& a, const Value& b) {
  int64_t x = 0;
  int64_t y = 0;
  if (to_integer(a, x) && to_integer(b, y)) return x < y ? -1 : x > y;
  const double dx = to_double(a);
  const double dy = to_double(b);
  return dx < dy ? -1 : dx > dy;
}

// Lists and tuples of the same kind.
bool comparable(const Sequence* a, const Sequence* b) {
  return a != nullptr && b != nullptr && a->kind == b->kind &&
         (a->kind == SequenceKind::kList || a->kind == SequenceKind::kTuple);
}

}  // namespace

bool Value::same_object(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  return std::visit(
      [&](const auto& mine) {
        using T = std::decay_t<decltype(mine)>;
        if constexpr (std::is_same_v<T, UndefinedTag> || std::is_same_v<T, NoneTag>) {
          return true;
        } else if constexpr (std::is_same_v<T, StringPtr>) {
          return *mine == *std::get<T>(other.data_);
        } else {
          return mine == std::get<T>(other.data_);
        }
      },
      data_);
}

const Value* Dict::find(const Value& key) const {
  std::string encoded;
  if (!append_key(key, encoded)) return nullptr;
  if (!index_.empty()) {
    const auto it = index_.find(encoded);
    return it == index_.end() ? nullptr : &items_[it->second].second;
  }
  std::string other;
  for (const auto& [k, v] : items_) {
    other.clear();
    append_key(k, other);
    if (other == encoded) return &v;
  }
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  if (!index_.empty()) return find(Value(key));
  for (const auto& [k, v] : items_) {
    if (k.is_string() && k.string() == key) return &v;
  }
  return nullptr;
}

void Dict::set(const Value& key, Value value) {
  depth_ = std::max({depth_, 1 + depth_of(value), 1 + depth_of(key)});
  if (const Value* found = find(key)) {
    // The entry is ours: find() is const only because it also serves readers.
    const_cast<Value&>(*found) = std::move(value);
    return;
  }
  items_.emplace_back(key, std::move(value));
  if (items_.size() < kIndexFrom) return;
  for (size_t i = index_.size(); i < items_.size(); ++i) {
    std::string encoded;
    append_key(items_[i].first, encoded);
    index_.emplace(std::move(encoded), i);
  }
}

int depth_of(const Value& value) {
  if (const Sequence* sequence = value.sequence()) return sequence->depth;
  if (const Dict* dict = value.dict()) return dict->depth();
  if (const auto* callable = value.get<CallablePtr>()) return (*callable)->depth;
  if (const auto* loop = value.get<LoopPtr>()) return (*loop)->depth;
  return value.get<NamespacePtr>() != nullptr ? 1 : 0;
}

int depth_of(const Values& values) {
  int depth = 0;
  for (const Value& value : values) depth = std::max(depth, depth_of(value));
  return depth;
}

Value make_sequence(SequenceKind kind, Values items, Budget& budget) {
  budget.tick(1 + static_cast<int64_t>(items.size()));
  const int depth = 1 + depth_of(items);
  if (depth > kMaxValueDepth) budget.fail("lists nested more than {} deep", kMaxValueDepth);
  return Value(std::make_shared<Sequence>(Sequence{kind, std::move(items), {}, depth}));
}

Value make_dict(Dict dict, Budget& budget) {
  budget.tick(1 + static_cast<int64_t>(dict.items().size()));
  if (dict.depth() > kMaxValueDepth) budget.fail("dicts nested more than {} deep", kMaxValueDepth);
  for (const auto& [key, value] : dict.items()) {
    std::string encoded;
    if (!append_key(key, encoded)) budget.fail("unhashable type: '{}' as a key of a dict", type_name(key));
  }
  return Value(std::make_shared<const Dict>(std::move(dict)));
}

Value make_string(std::string text, Budget& budget) {
  budget.text(text.size());
  return Value(std::move(text));
}

Value make_method(std::string name, const Value& self, std::function<Value(Runtime&, Args&)> call, Budget& budget) {
  budget.tick();
  const int depth = 1 + depth_of(self);
  if (depth > kMaxValueDepth) budget.fail("values nested more than {} deep", kMaxValueDepth);
  return Value(std::make_shared<const Callable>(Callable{std::move(name), std::move(call), depth}));
}

Value from_json(const Json& value, Budget& budget) {
  switch (value.type()) {
    case Json::value_t::null:
      return Value::none();
    case Json::value_t::boolean:
      return Value(value.get<bool>());
    case Json::value_t::number_unsigned:
      if (value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        budget.fail("the whole number {} among the variables needs more than 64 bits", value.dump());
      }
      return Value(value.get<int64_t>());
    case Json::value_t::number_integer:
      return Value(value.get<int64_t>());
    case Json::value_t::number_float:
      return Value(value.get<double>());
    case Json::value_t::string: {
      if (!valid_utf8(value.get_ref<const std::string&>())) budget.fail("a text among the variables is not UTF-8");
      return make_string(value.get<std::string>(), budget);
    }
    case Json::value_t::array: {
      Values items;
      for (const Json& item : value) items.push_back(from_json(item, budget));
      return make_list(std::move(items), budget);
    }
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : value.items()) dict.set(make_string(key, budget), from_json(item, budget));
      return make_dict(std::move(dict), budget);
    }
    default:
      budget.fail("a variable is not JSON");
  }
}

bool truthy(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const bool* v = value.get<bool>()) return *v;
  if (const int64_t* v = value.get<int64_t>()) return *v != 0;
  if (const double* v = value.get<double>()) return *v != 0;
  if (value.is_string()) return !value.string().empty();
  if (const Sequence* v = value.sequence()) return v->kind == SequenceKind::kIterator || !v->items.empty();
  if (const Dict* v = value.dict()) return !v->items().empty();
  return true;
}

std::string_view type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.get<bool>()) return "bool";
  if (value.get<int64_t>()) return "int";
  if (value.get<double>()) return "float";
  if (value.is_string()) return "str";
  if (value.dict()) return "dict";
  if (value.get<NamespacePtr>()) return "Namespace";
  if (value.get<LoopPtr>()) return "LoopContext";
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr) return "function";
  switch (sequence->kind) {
    case SequenceKind::kList:
      return "list";
    case SequenceKind::kTuple:
      return "tuple";
    case SequenceKind::kRange:
      return "range";
    case SequenceKind::kView:
      return "dict view";
    case SequenceKind::kIterator:
      return "generator";
  }
  return "object";
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.tick();
  if (is_number(a) && is_number(b)) {
    if ((a.get<double>() && std::isnan(to_double(a))) || (b.get<double>() && std::isnan(to_double(b)))) return false;
    return compare_numbers(a, b) == 0;
  }
  if (a.is_string() && b.is_string()) {
    if (a.string().size() == b.string().size()) budget.text(a.string().size());
    return a.string() == b.string();
  }
  const Sequence* sa = a.sequence();
  const Sequence* sb = b.sequence();
  if (sa != nullptr && sb != nullptr && sa->kind == sb->kind && sa->kind != SequenceKind::kIterator) {
    return sa->items.size() == sb->items.size() &&
           std::equal(sa->items.begin(), sa->items.end(), sb->items.begin(),
                      [&](const Value& x, const Value& y) { return equal(x, y, budget); });
  }
  const Dict* da = a.dict();
  const Dict* db = b.dict();
  if (da != nullptr && db != nullptr) {
    if (da->items().size() != db->items().size()) return false;
    return std::all_of(da->items().begin(), da->items().end(), [&](const auto& item) {
      const Value* other = db->find(item.first);
      return other != nullptr && equal(item.second, *other, budget);
    });
  }
  return a.same_object(b);
}

int compare(const Value& a, const Value& b, Budget& budget) {
  budget.tick();
  if (is_number(a) && is_number(b)) return compare_numbers(a, b);
  if (a.is_string() && b.is_string()) {  // the order of UTF-8 bytes is that of code points
    budget.text(std::min(a.string().size(), b.string().size()));
    return a.string().compare(b.string());
  }
  const Sequence* sa = a.sequence();
  const Sequence* sb = b.sequence();
  if (comparable(sa, sb)) {
    const size_t shared = std::min(sa->items.size(), sb->items.size());
    for (size_t i = 0; i < shared; ++i) {
      if (!equal(sa->items[i], sb->items[i], budget)) return compare(sa->items[i], sb->items[i], budget);
    }
    return sa->items.size() < sb->items.size() ? -1 : sa->items.size() > sb->items.size();
  }
  budget.fail("'{}' and '{}' have no order", type_name(a), type_name(b));
}

Values iterate(const Value& value, Budget& budget) {
  if (value.is_undefined()) return {};
  if (const auto* sequence = value.get<SequencePtr>()) {
    budget.tick(static_cast<int64_t>((*sequence)->items.size()));
    if ((*sequence)->kind == SequenceKind::kIterator) return std::exchange((*sequence)->items, {});
    return (*sequence)->items;
  }
  Values out;
  if (const Dict* dict = value.dict()) {
    budget.tick(static_cast<int64_t>(dict->items().size()));
    for (const auto& item : dict->items()) out.push_back(item.first);
    return out;
  }
  if (value.is_string()) {
    const std::string& text = value.string();
    budget.tick(static_cast<int64_t>(text.size()));
    for (size_t pos = 0; pos < text.size();) {
      const size_t start = pos;
      next_point(text, pos);
      out.emplace_back(text.substr(start, pos - start));
    }
    return out;
  }
  budget.fail("'{}' object is not iterable", type_name(value));
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (container.is_string()) {
    if (!item.is_string()) budget.fail("'in <string>' needs a string at its left, not {}", type_name(item));
    budget.text(container.string().size());
    return container.string().find(item.string()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) {
    budget.tick();
    return dict->find(item) != nullptr;
  }
  const Values items = iterate(container, budget);
  return std::any_of(items.begin(), items.end(), [&](const Value& v) { return equal(v, item, budget); });
}

bool is_number(const Value& value) { return value.get<bool>() || value.get<int64_t>() || value.get<double>(); }

bool to_integer(const Value& value, int64_t& out) {
  if (const bool* flag = value.get<bool>()) {
    out = *flag ? 1 : 0;
    return true;
  }
  if (const int64_t* whole = value.get<int64_t>()) {
    out = *whole;
    return true;
  }
  return false;
}

double to_double(const Value& value) {
  int64_t whole = 0;
  if (to_integer(value, whole)) return static_cast<double>(whole);
  const double* number = value.get<double>();
  return number != nullptr ? *number : 0;
}

}  // namespace lazytrain::text::jinja
