#include "text/jinja/tests.h"

#include <algorithm>
#include <array>

#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace lazytrain::text::jinja {
namespace {

using Test = bool (*)(const Value& value, ArgReader& args, Budget& budget);

bool is_sequence(const Value& v) {
  if (v.is_undefined() || v.is_string() || v.dict()) return true;
  const Sequence* sequence = v.sequence();
  return sequence != nullptr && sequence->kind != SequenceKind::kView && sequence->kind != SequenceKind::kIterator;
}

bool is_iterable(const Value& v) {
  return v.is_undefined() || v.is_string() || v.dict() || v.sequence() || v.get<LoopPtr>();
}

bool is_flag(const Value& v, bool wanted) { return v.get<bool>() && *v.get<bool>() == wanted; }

bool remainder_is(const Value& v, const Value& divisor, int64_t wanted, Budget& b) {
  return equal(binary_operator("%", v, divisor, b), Value(wanted), b);
}

// The cased letters of a text are all of this case, and there is one.
bool is_cased(const Value& v, bool upper_case, Budget& b) {
  bool some = false;
  for (const char32_t p : to_points(str(v, b))) {
    if (upper_case ? is_lower(p) : is_upper(p)) return false;
    some = some || (upper_case ? is_upper(p) : is_lower(p));
  }
  return some;
}

template <bool (*Ask)(std::string_view)>
bool named(const Value& v, ArgReader&, Budget&) {
  return v.is_string() && Ask(v.string());
}

struct Entry {
  std::string_view name;
  std::string_view operation;  // of compare_operator, else the test is `test`
  Test test;
};

constexpr std::array kTests = {
    Entry{"defined", "", [](const Value& v, ArgReader&, Budget&) { return !v.is_undefined(); }},
    Entry{"undefined", "", [](const Value& v, ArgReader&, Budget&) { return v.is_undefined(); }},
    Entry{"none", "", [](const Value& v, ArgReader&, Budget&) { return v.is_none(); }},
    Entry{"string", "", [](const Value& v, ArgReader&, Budget&) { return v.is_string(); }},
    Entry{"mapping", "", [](const Value& v, ArgReader&, Budget&) { return v.dict() != nullptr; }},
    Entry{"iterable", "", [](const Value& v, ArgReader&, Budget&) { return is_iterable(v); }},
    Entry{"sequence", "", [](const Value& v, ArgReader&, Budget&) { return is_sequence(v); }},
    Entry{"number", "", [](const Value& v, ArgReader&, Budget&) { return is_number(v); }},
    Entry{"integer", "", [](const Value& v, ArgReader&, Budget&) { return v.get<int64_t>() != nullptr; }},
    Entry{"float", "", [](const Value& v, ArgReader&, Budget&) { return v.get<double>() != nullptr; }},
    Entry{"boolean", "", [](const Value& v, ArgReader&, Budget&) { return v.get<bool>() != nullptr; }},
    Entry{"true", "", [](const Value& v, ArgReader&, Budget&) { return is_flag(v, true); }},
    Entry{"false", "", [](const Value& v, ArgReader&, Budget&) { return is_flag(v, false); }},
    Entry{"callable", "", [](const Value& v, ArgReader&, Budget&) { return v.get<CallablePtr>() != nullptr; }},
    Entry{"odd", "", [](const Value& v, ArgReader&, Budget& b) { return remainder_is(v, Value(int64_t{2}), 1, b); }},
    Entry{"even", "", [](const Value& v, ArgReader&, Budget& b) { return remainder_is(v, Value(int64_t{2}), 0, b); }},
    Entry{"divisibleby", "",
          [](const Value& v, ArgReader& args, Budget& b) { return remainder_is(v, args.required("num"), 0, b); }},
    Entry{"upper", "", [](const Value& v, ArgReader&, Budget& b) { return is_cased(v, true, b); }},
    Entry{"lower", "", [](const Value& v, ArgReader&, Budget& b) { return is_cased(v, false, b); }},
    Entry{"sameas", "", [](const Value& v, ArgReader& args, Budget&) { return v.same_object(args.required("other")); }},
    Entry{"filter", "", named<is_filter>},
    Entry{"test", "", named<is_test>},
    Entry{"in", "in", nullptr},
    Entry{"eq", "==", nullptr},
    Entry{"equalto", "==", nullptr},
    Entry{"==", "==", nullptr},
    Entry{"ne", "!=", nullptr},
    Entry{"!=", "!=", nullptr},
    Entry{"gt", ">", nullptr},
    Entry{"greaterthan", ">", nullptr},
    Entry{">", ">", nullptr},
    Entry{"ge", ">=", nullptr},
    Entry{">=", ">=", nullptr},
    Entry{"lt", "<", nullptr},
    Entry{"lessthan", "<", nullptr},
    Entry{"<", "<", nullptr},
    Entry{"le", "<=", nullptr},
    Entry{"<=", "<=", nullptr},
};

const Entry* entry_of(std::string_view name) {
  const auto* found = std::find_if(kTests.begin(), kTests.end(), [&](const Entry& e) { return e.name == name; });
  return found == kTests.end() ? nullptr : found;
}

}  // namespace

bool is_test(std::string_view name) { return entry_of(name) != nullptr; }

bool apply_test(std::string_view name, const Value& value, Args& args, Budget& budget) {
  const Entry* entry = entry_of(name);
  if (entry == nullptr) budget.unsupported("the test '{}'", name);
  ArgReader reader(name, args, budget);
  const bool result = entry->operation.empty()
                          ? entry->test(value, reader, budget)
                          : compare_operator(entry->operation, value, reader.required("other"), budget);
  reader.done();
  return result;
}

}  // namespace lazytrain::text::jinja
