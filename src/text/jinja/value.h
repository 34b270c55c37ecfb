// What a template computes with: Python's values as far as chat templates use them. Values are immutable and shared,
// but for namespaces.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "text/jinja/budget.h"

namespace lazytrain::text::jinja {

class Value;
class Runtime;
struct Sequence;
class Dict;
struct Namespace;
struct Callable;
struct LoopState;

struct UndefinedTag {
  std::shared_ptr<const std::string> hint;  // why it is undefined, for errors
};
struct NoneTag {};

using StringPtr = std::shared_ptr<const std::string>;
using SequencePtr = std::shared_ptr<Sequence>;
using DictPtr = std::shared_ptr<const Dict>;
using NamespacePtr = std::shared_ptr<Namespace>;
using CallablePtr = std::shared_ptr<const Callable>;
using LoopPtr = std::shared_ptr<LoopState>;

class Value {
 public:
  Value() : data_(UndefinedTag{}) {}
  static Value undefined(std::string hint) {
    Value v;
    v.data_ = UndefinedTag{std::make_shared<const std::string>(std::move(hint))};
    return v;
  }
  static Value none() { return Value(NoneTag{}); }
  explicit Value(NoneTag tag) : data_(tag) {}
  explicit Value(bool v) : data_(v) {}
  explicit Value(int64_t v) : data_(v) {}
  explicit Value(double v) : data_(v) {}
  explicit Value(std::string v) : data_(std::make_shared<const std::string>(std::move(v))) {}
  explicit Value(std::string_view v) : Value(std::string(v)) {}
  explicit Value(const char* v) : Value(std::string(v)) {}
  explicit Value(SequencePtr v) : data_(std::move(v)) {}
  explicit Value(DictPtr v) : data_(std::move(v)) {}
  explicit Value(NamespacePtr v) : data_(std::move(v)) {}
  explicit Value(CallablePtr v) : data_(std::move(v)) {}
  explicit Value(LoopPtr v) : data_(std::move(v)) {}

  template <typename T>
  const T* get() const {
    return std::get_if<T>(&data_);
  }
  bool is_undefined() const { return get<UndefinedTag>() != nullptr; }
  bool is_none() const { return get<NoneTag>() != nullptr; }
  bool is_string() const { return get<StringPtr>() != nullptr; }
  const std::string& string() const { return **get<StringPtr>(); }
  const Sequence* sequence() const { return get<SequencePtr>() ? get<SequencePtr>()->get() : nullptr; }
  const Dict* dict() const { return get<DictPtr>() ? get<DictPtr>()->get() : nullptr; }
  bool same_object(const Value& other) const;

 private:
  std::variant<UndefinedTag, NoneTag, bool, int64_t, double, StringPtr, SequencePtr, DictPtr, NamespacePtr, CallablePtr,
               LoopPtr>
      data_;
};

using Values = std::vector<Value>;

enum class SequenceKind : uint8_t { kList, kTuple, kRange, kView, kIterator };

// Lists, tuples, and what Python makes lazily. An iterator is emptied by its first reader.
struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  Values items;
  std::string label;  // how a range or a view prints
  int depth = 1;      // levels of containers, itself included
};

// Keeps the order of insertion. Keys are what Python can hash: None, bool, int, float, str, tuples of such.
class Dict {
 public:
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value);  // replaces, keeping the place
  int depth() const { return depth_; }

 private:
  std::vector<std::pair<Value, Value>> items_;
  std::unordered_map<std::string, size_t> index_;
  int depth_ = 1;
};

struct Namespace {
  std::unordered_map<std::string, Value> attributes;
};

struct Args {
  Values positional;
  std::vector<std::pair<std::string, Value>> keyword;
};

struct Callable {
  std::string name;
  std::function<Value(Runtime&, Args&)> call;
  int depth = 1;
};

struct LoopState {
  Values items;
  int64_t index = 0;
  int depth = 1;
};

// Containers in a value, itself included; 0 for a scalar. What is nested deeper than kMaxValueDepth is refused.
int depth_of(const Value& value);
int depth_of(const Values& values);

Value make_sequence(SequenceKind kind, Values items, Budget& budget);
inline Value make_list(Values items, Budget& budget) {
  return make_sequence(SequenceKind::kList, std::move(items), budget);
}
inline Value make_tuple(Values items, Budget& budget) {
  return make_sequence(SequenceKind::kTuple, std::move(items), budget);
}
Value make_dict(Dict dict, Budget& budget);
Value make_string(std::string text, Budget& budget);
Value make_method(std::string name, const Value& self, std::function<Value(Runtime&, Args&)> call, Budget& budget);

// `value` as the caller's JSON gives it. Whole numbers beyond 64 bits are an error.
Value from_json(const Json& value, Budget& budget);

bool truthy(const Value& value);
std::string_view type_name(const Value& value);  // Python's name of the type
bool equal(const Value& a, const Value& b, Budget& budget);
// Python's order: negative, zero or positive. Types without an order are an error.
int compare(const Value& a, const Value& b, Budget& budget);
// A copy of what iterating `value` yields (empties an iterator). What cannot be iterated is an error.
Values iterate(const Value& value, Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);

bool is_number(const Value& value);                 // int, float, bool
bool to_integer(const Value& value, int64_t& out);  // int and bool only
double to_double(const Value& value);               // of a number

}  // namespace lazytrain::text::jinja
