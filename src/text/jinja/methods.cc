#include "text/jinja/methods.h"

#include <algorithm>
#include <array>
#include <limits>

#include "text/jinja/arguments.h"
#include "text/jinja/string_methods.h"

namespace lazytrain::text::jinja {
namespace {

constexpr std::array<std::string_view, 9> kDictMutators = {
    "pop", "popitem", "clear", "update", "setdefault", "fromkeys", "__setitem__", "__delitem__", "__class__"};
constexpr std::array<std::string_view, 7> kListMutators = {"append", "extend",  "insert", "remove",
                                                           "pop",    "reverse", "sort"};

template <size_t N>
bool among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value dict_view(const Dict& dict, std::string_view which, Budget& budget) {
  Values items;
  for (const auto& [key, value] : dict.items()) {
    if (which == "items") {
      items.push_back(make_tuple({key, value}, budget));
    } else {
      items.push_back(which == "keys" ? key : value);
    }
  }
  Value view = make_sequence(SequenceKind::kView, std::move(items), budget);
  (*view.get<SequencePtr>())->label = fmt::format("dict_{}", which);
  return view;
}

Value call_dict(const std::string& name, const Value& self, Args& args, Budget& budget) {
  const Dict& dict = *self.dict();
  ArgReader reader(name, args, budget);
  if (name == "get") {
    const Value& key = reader.required("key");
    const Value* otherwise = reader.optional("default");
    reader.done();
    budget.tick();
    if (const Value* found = dict.find(key)) return *found;
    return otherwise != nullptr ? *otherwise : Value::none();
  }
  reader.done();
  return name == "copy" ? self : dict_view(dict, name, budget);
}

Value call_list(const std::string& name, const Value& self, Args& args, Budget& budget) {
  ArgReader reader(name, args, budget);
  if (name == "copy") {
    reader.done();
    return self;
  }
  const Value& wanted = reader.required("value");
  reader.done();
  int64_t count = 0;
  const Values& items = self.sequence()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!equal(items[i], wanted, budget)) continue;
    if (name == "index") return Value(static_cast<int64_t>(i));
    ++count;
  }
  if (name == "index") budget.fail("the value is not in the list");
  return Value(count);
}

}  // namespace

std::optional<Value> method_of(const Value& self, const std::string& name, Budget& budget) {
  const auto bind = [&](auto call) {
    return make_method(
        name, self, [name, self, call, &budget](Runtime&, Args& args) { return call(name, self, args, budget); },
        budget);
  };
  if (self.is_string()) {
    if (is_string_method(name)) return bind(call_string_method);
    if (is_foreign_string_method(name)) budget.unsupported("the method str.{}", name);
  } else if (self.dict() != nullptr) {
    if (name == "get" || name == "items" || name == "keys" || name == "values" || name == "copy")
      return bind(call_dict);
    if (among(kDictMutators, name))
      return Value::undefined(fmt::format("the method dict.{} would change the dict", name));
  } else if (const Sequence* sequence = self.sequence()) {
    const bool list = sequence->kind == SequenceKind::kList;
    if (!list && sequence->kind != SequenceKind::kTuple) return std::nullopt;
    if (name == "index" || name == "count" || (list && name == "copy")) return bind(call_list);
    if (list && (among(kListMutators, name) || name == "clear")) {
      return Value::undefined(fmt::format("the method list.{} would change the list", name));
    }
  }
  return std::nullopt;
}

}  // namespace lazytrain::text::jinja
