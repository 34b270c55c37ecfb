#include "text/jinja/functions.h"

#include <array>
#include <ctime>

#include "text/chat_template.h"
#include "text/jinja/arguments.h"
#include "text/jinja/print.h"

namespace lazytrain::text::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as Jinja's sandbox has it

Value range(Runtime& runtime, Args& args) {
  Budget& budget = runtime.budget();
  int64_t bounds[3] = {0, 0, 1};
  const size_t given = args.positional.size();
  if (given < 1 || given > 3 || !args.keyword.empty()) budget.fail("range takes one to three whole numbers");
  for (size_t i = 0; i < given; ++i) {
    if (!to_integer(args.positional[i], bounds[given == 1 ? 1 : i])) budget.fail("range takes whole numbers only");
  }
  const auto [begin, end, step] = bounds;
  if (step == 0) budget.fail("range: the step must not be 0");
  Values items;
  int64_t at = begin;
  while (step > 0 ? at < end : at > end) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) budget.fail("range has more than {} items", kMaxRange);
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  Value out = make_sequence(SequenceKind::kRange, std::move(items), budget);
  (*out.get<SequencePtr>())->label =
      step == 1 ? fmt::format("range({}, {})", begin, end) : fmt::format("range({}, {}, {})", begin, end, step);
  return out;
}

Dict dict_from(Args& args, Budget& budget) {
  Dict dict;
  if (args.positional.size() > 1) budget.fail("dict takes one argument by place at most");
  if (!args.positional.empty()) {
    if (const Dict* source = args.positional[0].dict()) {
      dict = *source;
    } else {
      for (const Value& pair : iterate(args.positional[0], budget)) {
        const Values both = iterate(pair, budget);
        if (both.size() != 2) budget.fail("dict takes pairs, not {} items", both.size());
        dict.set(both[0], both[1]);
      }
    }
  }
  for (const auto& [name, value] : args.keyword) dict.set(Value(name), value);
  return dict;
}

Value make_dict_value(Runtime& runtime, Args& args) {
  return make_dict(dict_from(args, runtime.budget()), runtime.budget());
}

Value raise_exception(Runtime& runtime, Args& args) {
  ArgReader reader("raise_exception", args, runtime.budget());
  const std::string message = str(reader.required("message"), runtime.budget());
  reader.done();
  throw RaisedError("{}", message);
}

Value strftime_now(Runtime& runtime, Args& args) {
  ArgReader reader("strftime_now", args, runtime.budget());
  const std::string* format = reader.text("format");
  reader.done();
  if (format == nullptr || format->size() > 256)
    runtime.budget().fail("strftime_now needs a format of at most 256 bytes");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 4096> buffer;
  return Value(std::string(buffer.data(), std::strftime(buffer.data(), buffer.size(), format->c_str(), &local)));
}

}  // namespace

void define_functions(Runtime& runtime) {
  const auto define = [&](const char* name, std::function<Value(Runtime&, Args&)> call) {
    runtime.define(name, Value(std::make_shared<const Callable>(Callable{name, std::move(call)})));
  };
  define("range", range);
  define("dict", make_dict_value);
  define("raise_exception", raise_exception);
  define("strftime_now", strftime_now);
  define("namespace", [](Runtime& rt, Args& args) {
    const Dict attributes = dict_from(args, rt.budget());
    Args named;
    for (const auto& [key, value] : attributes.items()) named.keyword.emplace_back(str(key, rt.budget()), value);
    return rt.make_namespace(named);
  });
  for (const char* name : {"cycler", "joiner", "lipsum"}) {
    define(name, [name](Runtime& rt, Args&) -> Value { rt.budget().unsupported("the function {}", name); });
  }
}

}  // namespace lazytrain::text::jinja
