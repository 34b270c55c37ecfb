#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>

#include "text/jinja/filter_tables.h"
#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/tests.h"
#include "text/jinja/unicode.h"

namespace lazytrain::text::jinja {

Value follow(const Value& value, const Value& path, Runtime& runtime) {
  if (!path.is_string()) return runtime.item(value, path);
  Value at = value;
  std::string_view rest = path.string();
  for (;;) {
    const size_t dot = rest.find('.');
    const std::string part(rest.substr(0, dot));
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool whole = error == std::errc() && end == part.data() + part.size() && part[0] != '-';
    at = runtime.item(at, whole ? Value(index) : Value(part));
    if (dot == std::string_view::npos) return at;
    rest.remove_prefix(dot + 1);
  }
}

namespace {

// What items are sorted and compared by: an attribute when one is given, with texts in lower case unless cased.
Value key_of(const Value& item, const Value* attribute, bool cased, Runtime& runtime) {
  Value key = attribute != nullptr && !attribute->is_none() ? follow(item, *attribute, runtime) : item;
  return !cased && key.is_string() ? make_string(lower(key.string()), runtime.budget()) : key;
}

Value length(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  Budget& budget = runtime.budget();
  ArgReader(name, args, budget).done();
  if (value.is_undefined()) return Value(int64_t{0});
  if (value.is_string()) {
    budget.text(value.string().size());
    return Value(point_count(value.string()));
  }
  if (const Dict* dict = value.dict()) return Value(static_cast<int64_t>(dict->items().size()));
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr || sequence->kind == SequenceKind::kIterator) {
    budget.fail("object of type '{}' has no length", type_name(value));
  }
  return Value(static_cast<int64_t>(sequence->items.size()));
}

Value join(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  Budget& budget = runtime.budget();
  ArgReader reader(name, args, budget);
  const Value* given = reader.optional("d");
  const Value* attribute = reader.optional("attribute");
  reader.done();
  const std::string separator = given != nullptr ? str(*given, budget) : "";
  std::string out;
  bool first = true;
  for (const Value& item : iterate(value, budget)) {
    if (!first) out += separator;
    first = false;
    append_str(out, attribute != nullptr && !attribute->is_none() ? follow(item, *attribute, runtime) : item, budget);
  }
  return make_string(std::move(out), budget);
}

Value end_item(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  Budget& budget = runtime.budget();
  ArgReader(name, args, budget).done();
  const Sequence* sequence = value.sequence();
  if (name == "last" && sequence != nullptr && sequence->kind == SequenceKind::kIterator) {
    budget.fail("'generator' object is not reversible");
  }
  const Values items = iterate(value, budget);
  if (items.empty()) return Value::undefined(fmt::format("no {} item, the sequence was empty", name));
  return name == "first" ? items.front() : items.back();
}

Value as_list(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  ArgReader(name, args, runtime.budget()).done();
  return make_list(iterate(value, runtime.budget()), runtime.budget());
}

Value items_of(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  Budget& budget = runtime.budget();
  ArgReader(name, args, budget).done();
  Values out;
  if (!value.is_undefined() && value.dict() == nullptr)
    budget.fail("items needs a mapping, not '{}'", type_name(value));
  if (const Dict* dict = value.dict()) {
    for (const auto& [key, item] : dict->items()) out.push_back(make_tuple({key, item}, budget));
  }
  return make_sequence(SequenceKind::kIterator, std::move(out), budget);
}

Value reversed(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  Budget& budget = runtime.budget();
  ArgReader(name, args, budget).done();
  if (value.is_string()) {
    std::u32string points = to_points(value.string());
    std::reverse(points.begin(), points.end());
    return make_string(from_points(points), budget);
  }
  Values items = iterate(value, budget);
  std::reverse(items.begin(), items.end());
  return make_sequence(SequenceKind::kIterator, std::move(items), budget);
}

// Sorts by keys taken once an item; equal ones keep their order, also backwards, as Python's sort does.
Values sort_by(Values items, const Values& keys, bool backwards, Budget& budget) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // compare() throws on values without an order; NaN would break a strict order, so sorting is by merging.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return backwards ? compare(keys[b], keys[a], budget) < 0 : compare(keys[a], keys[b], budget) < 0;
  });
  Values out;
  for (const size_t i : order) out.push_back(std::move(items[i]));
  return out;
}

Value sorted(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  Budget& budget = runtime.budget();
  ArgReader reader(name, args, budget);
  const bool backwards = reader.boolean("reverse", false);
  const bool cased = reader.boolean("case_sensitive", false);
  const Value* attribute = reader.optional("attribute");
  reader.done();
  if (attribute != nullptr && attribute->is_string() && attribute->string().find(',') != std::string::npos) {
    budget.unsupported("sorting by several attributes");
  }
  Values items = iterate(value, budget);
  Values keys;
  for (const Value& item : items) keys.push_back(key_of(item, attribute, cased, runtime));
  return make_list(sort_by(std::move(items), keys, backwards, budget), budget);
}

Value dictsort(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  Budget& budget = runtime.budget();
  ArgReader reader(name, args, budget);
  const bool cased = reader.boolean("case_sensitive", false);
  const std::string* by = reader.text("by");
  const bool backwards = reader.boolean("reverse", false);
  reader.done();
  const Dict* dict = value.dict();
  if (dict == nullptr) budget.fail("dictsort needs a mapping, not '{}'", type_name(value));
  if (by != nullptr && *by != "key" && *by != "value") budget.fail("dictsort: by must be key or value");
  Values items;
  Values keys;
  for (const auto& [key, item] : dict->items()) {
    items.push_back(make_tuple({key, item}, budget));
    keys.push_back(key_of(by != nullptr && *by == "value" ? item : key, nullptr, cased, runtime));
  }
  return make_list(sort_by(std::move(items), keys, backwards, budget), budget);
}

Value unique(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  Budget& budget = runtime.budget();
  ArgReader reader(name, args, budget);
  const bool cased = reader.boolean("case_sensitive", false);
  const Value* attribute = reader.optional("attribute");
  reader.done();
  Dict seen;
  Values out;
  for (const Value& item : iterate(value, budget)) {
    const Value key = key_of(item, attribute, cased, runtime);
    if (seen.find(key) != nullptr) continue;
    seen.set(key, Value::none());
    out.push_back(item);
  }
  make_dict(std::move(seen), budget);  // refuses keys that cannot be hashed
  return make_sequence(SequenceKind::kIterator, std::move(out), budget);
}

Value extreme(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  Budget& budget = runtime.budget();
  ArgReader reader(name, args, budget);
  const bool cased = reader.boolean("case_sensitive", false);
  const Value* attribute = reader.optional("attribute");
  reader.done();
  const Values items = iterate(value, budget);
  if (items.empty()) return Value::undefined("no aggregated item, the sequence was empty");
  size_t best = 0;
  Value best_key = key_of(items[0], attribute, cased, runtime);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = key_of(items[i], attribute, cased, runtime);
    const int order = compare(key, best_key, budget);
    if (name == "min" ? order >= 0 : order <= 0) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

Value sum(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  Budget& budget = runtime.budget();
  ArgReader reader(name, args, budget);
  const Value* attribute = reader.optional("attribute");
  const Value* start = reader.optional("start");
  reader.done();
  Value total = start != nullptr ? *start : Value(int64_t{0});
  if (total.is_string()) budget.fail("sum cannot add strings, use join");
  for (const Value& item : iterate(value, budget)) {
    const bool part = attribute != nullptr && !attribute->is_none();
    total = binary_operator("+", total, part ? follow(item, *attribute, runtime) : item, budget);
  }
  return total;
}

Value batch(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  Budget& budget = runtime.budget();
  ArgReader reader(name, args, budget);
  const int64_t size = reader.integer("linecount", 0);
  const Value* fill = reader.optional("fill_with");
  reader.done();
  if (size < 1 || size > 100'000) budget.fail("batch needs a size from 1 to 100000");
  Values out;
  Values row;
  for (Value& item : iterate(value, budget)) {
    if (static_cast<int64_t>(row.size()) == size) out.push_back(make_list(std::exchange(row, {}), budget));
    row.push_back(std::move(item));
  }
  if (!row.empty()) {
    while (fill != nullptr && !fill->is_none() && static_cast<int64_t>(row.size()) < size) row.push_back(*fill);
    out.push_back(make_list(std::move(row), budget));
  }
  return make_sequence(SequenceKind::kIterator, std::move(out), budget);
}

Value map(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  Budget& budget = runtime.budget();
  Values out;
  if (args.positional.empty()) {
    ArgReader reader(name, args, budget);
    const Value& attribute = reader.required("attribute");
    const Value* otherwise = reader.optional("default");
    reader.done();
    for (const Value& item : iterate(value, budget)) {
      Value found = follow(item, attribute, runtime);
      out.push_back(found.is_undefined() && otherwise != nullptr ? *otherwise : std::move(found));
    }
  } else {
    const Value filter = args.positional[0];
    if (!filter.is_string()) budget.fail("map needs the name of a filter");
    for (const Value& item : iterate(value, budget)) {
      Args rest{Values(args.positional.begin() + 1, args.positional.end()), args.keyword};
      out.push_back(apply_filter(filter.string(), item, rest, runtime));
    }
  }
  return make_sequence(SequenceKind::kIterator, std::move(out), budget);
}

// select, reject, selectattr and rejectattr: by a test, or by truth where none is named.
Value select(std::string_view name, const Value& value, Args& args, Runtime& runtime) {
  Budget& budget = runtime.budget();
  const size_t skipped = name.ends_with("attr") ? 1 : 0;
  const bool wanted = name.starts_with("select");
  if (args.positional.size() < skipped) budget.fail("{} needs the name of an attribute", name);
  Values out;
  for (const Value& item : iterate(value, budget)) {
    const Value tested = skipped != 0 ? follow(item, args.positional[0], runtime) : item;
    bool passed = truthy(tested);
    if (args.positional.size() > skipped) {
      const Value test = args.positional[skipped];
      if (!test.is_string()) budget.fail("{} needs the name of a test", name);
      Args rest{Values(args.positional.begin() + static_cast<int64_t>(skipped) + 1, args.positional.end()),
                args.keyword};
      passed = apply_test(test.string(), tested, rest, budget);
    }
    if (passed == wanted) out.push_back(item);
  }
  return make_sequence(SequenceKind::kIterator, std::move(out), budget);
}

constexpr FilterEntry kFilters[] = {
    {"length", length}, {"count", length},   {"join", join},        {"first", end_item},    {"last", end_item},
    {"list", as_list},  {"items", items_of}, {"reverse", reversed}, {"sort", sorted},       {"dictsort", dictsort},
    {"unique", unique}, {"min", extreme},    {"max", extreme},      {"sum", sum},           {"batch", batch},
    {"map", map},       {"select", select},  {"reject", select},    {"selectattr", select}, {"rejectattr", select},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() { return kFilters; }

}  // namespace lazytrain::text::jinja
