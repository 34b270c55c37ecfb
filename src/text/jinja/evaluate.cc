// The part of Runtime that evaluates expressions.
#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/runtime.h"
#include "text/jinja/tests.h"
#include "text/jinja/unicode.h"

namespace lazytrain::text::jinja {
namespace {

std::string describe_type(const Value& value) {
  return value.is_none() ? "None" : fmt::format("'{}' object", type_name(value));
}

// The element of a sequence or string at an index that may count from the end; nothing when outside.
std::optional<Value> element(const Value& object, int64_t index, Budget& budget) {
  const Sequence* sequence = object.sequence();
  if (sequence != nullptr && sequence->kind != SequenceKind::kView && sequence->kind != SequenceKind::kIterator) {
    const auto length = static_cast<int64_t>(sequence->items.size());
    if (index < 0) index += length;
    if (index < 0 || index >= length) return std::nullopt;
    return sequence->items[static_cast<size_t>(index)];
  }
  if (!object.is_string()) return std::nullopt;
  budget.text(object.string().size());
  const int64_t length = point_count(object.string());
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  size_t pos = 0;
  while (index-- > 0) next_point(object.string(), pos);
  const size_t start = pos;
  next_point(object.string(), pos);
  return Value(object.string().substr(start, pos - start));
}

}  // namespace

Value Runtime::eval(const Expr& node, const ScopePtr& scope) {
  budget_.line = node.line;
  budget_.tick();
  if (++depth_ > kMaxRuntimeDepth) budget_.fail("calls and expressions nested more than {} deep", kMaxRuntimeDepth);
  Value out;
  switch (node.kind) {
    case ExprKind::kConstant:
      out = node.constant;
      break;
    case ExprKind::kName:
      out = eval_name(node, scope);
      break;
    case ExprKind::kList:
      out = make_list(eval_children(node, 0, scope), budget_);
      break;
    case ExprKind::kTuple:
      out = make_tuple(eval_children(node, 0, scope), budget_);
      break;
    case ExprKind::kDict:
      out = eval_dict(node, scope);
      break;
    case ExprKind::kUnary:
      out = unary_operator(node.name, eval(*node.children[0], scope), budget_);
      break;
    case ExprKind::kBinary:
      out = eval_binary(node, scope);
      break;
    case ExprKind::kCompare:
      out = eval_compare(node, scope);
      break;
    case ExprKind::kConditional:
      out = eval_conditional(node, scope);
      break;
    case ExprKind::kAttribute:
      out = attribute(eval(*node.children[0], scope), node.name);
      break;
    case ExprKind::kSubscript: {
      const Value object = eval(*node.children[0], scope);
      out = item(object, eval(*node.children[1], scope));
      break;
    }
    case ExprKind::kSlice:
      out = eval_slice(node, scope);
      break;
    case ExprKind::kCall:
      out = eval_call(node, scope);
      break;
    case ExprKind::kFilter:
      out = eval_filter(node, nullptr, scope);
      break;
    case ExprKind::kTest: {
      const Value value = eval(*node.children[0], scope);
      Args args = eval_arguments(node, scope);
      out = Value(apply_test(node.name, value, args, budget_));
      break;
    }
  }
  --depth_;
  return out;
}

Value Runtime::eval_name(const Expr& node, const ScopePtr& scope) {
  const Value* found = scope->find(node.name);
  return found != nullptr ? *found : Value::undefined(fmt::format("'{}' is undefined", node.name));
}

Value Runtime::eval_binary(const Expr& node, const ScopePtr& scope) {
  Value left = eval(*node.children[0], scope);
  if (node.name == "and") return truthy(left) ? eval(*node.children[1], scope) : left;
  if (node.name == "or") return truthy(left) ? left : eval(*node.children[1], scope);
  const Value right = eval(*node.children[1], scope);
  budget_.line = node.line;
  return binary_operator(node.name, left, right, budget_);
}

Value Runtime::eval_compare(const Expr& node, const ScopePtr& scope) {
  Value left = eval(*node.children[0], scope);
  for (size_t i = 0; i < node.operators.size(); ++i) {
    Value right = eval(*node.children[i + 1], scope);
    if (!compare_operator(node.operators[i], left, right, budget_)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Runtime::eval_conditional(const Expr& node, const ScopePtr& scope) {
  if (truthy(eval(*node.children[0], scope))) return eval(*node.children[1], scope);
  if (node.children[2]) return eval(*node.children[2], scope);
  return Value::undefined("the inline if-expression evaluated to false and no else section was defined");
}

Value Runtime::eval_slice(const Expr& node, const ScopePtr& scope) {
  const Value object = eval(*node.children[0], scope);
  Value bounds[3];
  const Value* given[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    if (!node.children[i + 1]) continue;
    bounds[i] = eval(*node.children[i + 1], scope);
    given[i] = &bounds[i];
  }
  return slice(object, given[0], given[1], given[2], budget_);
}

Values Runtime::eval_children(const Expr& node, size_t from, const ScopePtr& scope) {
  Values out;
  for (size_t i = from; i < node.children.size(); ++i) out.push_back(eval(*node.children[i], scope));
  return out;
}

Value Runtime::eval_dict(const Expr& node, const ScopePtr& scope) {
  const Values values = eval_children(node, 0, scope);
  Dict dict;
  for (size_t i = 0; i + 1 < values.size(); i += 2) dict.set(values[i], values[i + 1]);
  return make_dict(std::move(dict), budget_);
}

Args Runtime::eval_arguments(const Expr& node, const ScopePtr& scope) {
  Args args;
  args.positional = eval_children(node, 1, scope);
  for (const auto& [name, value] : node.keywords) {
    const bool twice = std::any_of(args.keyword.begin(), args.keyword.end(),
                                   [&wanted = name](const auto& k) { return k.first == wanted; });
    if (twice) budget_.fail("the argument '{}' is given twice", name);
    args.keyword.emplace_back(name, eval(*value, scope));
  }
  budget_.line = node.line;
  return args;
}

Value Runtime::eval_call(const Expr& node, const ScopePtr& scope) {
  const Value callee = eval(*node.children[0], scope);
  Args args = eval_arguments(node, scope);
  return call(callee, args);
}

Value Runtime::eval_filter(const Expr& node, const Value* operand, const ScopePtr& scope) {
  Value value;
  if (!node.children[0]) {
    value = *operand;
  } else if (operand != nullptr && node.children[0]->kind == ExprKind::kFilter) {
    value = eval_filter(*node.children[0], operand, scope);
  } else {
    value = eval(*node.children[0], scope);
  }
  Args args = eval_arguments(node, scope);
  return apply_filter(node.name, value, args, *this);
}

Value Runtime::call(const Value& callee, Args& args) {
  if (callee.is_undefined()) fail_undefined(callee, budget_);
  const auto* function = callee.get<CallablePtr>();
  if (function == nullptr) budget_.fail("'{}' object is not callable", type_name(callee));
  budget_.tick();
  return (*function)->call(*this, args);
}

Value Runtime::attribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) fail_undefined(object, budget_);
  if (const auto* loop = object.get<LoopPtr>()) return loop_attribute(*loop, name);
  if (const auto* space = object.get<NamespacePtr>()) {
    const auto it = (*space)->attributes.find(name);
    return it != (*space)->attributes.end()
               ? it->second
               : Value::undefined(fmt::format("'Namespace' object has no attribute '{}'", name));
  }
  if (auto method = method_of(object, name, budget_)) return *std::move(method);
  if (const Dict* dict = object.dict()) {
    if (const Value* found = dict->find(name)) return *found;
  }
  return Value::undefined(fmt::format("{} has no attribute '{}'", describe_type(object), name));
}

Value Runtime::item(const Value& object, const Value& key) {
  if (object.is_undefined()) fail_undefined(object, budget_);
  budget_.tick();
  int64_t index = 0;
  if (const Dict* dict = object.dict()) {
    if (const Value* found = dict->find(key)) return *found;
  } else if (to_integer(key, index)) {
    if (auto found = element(object, index, budget_)) return *std::move(found);
    return Value::undefined(fmt::format("{} has no element {}", describe_type(object), index));
  }
  if (!key.is_string()) return Value::undefined(describe_type(object) + " has no such element");
  if (object.get<LoopPtr>() || object.get<NamespacePtr>()) return attribute(object, key.string());
  if (auto method = method_of(object, key.string(), budget_)) return *std::move(method);
  return Value::undefined(fmt::format("{} has no attribute '{}'", describe_type(object), key.string().substr(0, 100)));
}

Value Runtime::loop_attribute(const LoopPtr& loop, const std::string& name) {
  const int64_t index = loop->index;
  const auto length = static_cast<int64_t>(loop->items.size());
  const auto neighbour = [&](int64_t at, const char* what) {
    if (at < 0 || at >= length) return Value::undefined(std::string("there is no ") + what + " item");
    return loop->items[static_cast<size_t>(at)];
  };
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(length - index);
  if (name == "revindex0") return Value(length - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index == length - 1);
  if (name == "length") return Value(length);
  if (name == "depth") return Value(int64_t{1});  // of recursive loops, which are not known here
  if (name == "depth0") return Value(int64_t{0});
  if (name == "previtem") return neighbour(index - 1, "previous");
  if (name == "nextitem") return neighbour(index + 1, "next");
  if (name == "cycle") {
    return make_method(
        "cycle", Value(loop),
        [loop](Runtime& runtime, Args& args) {
          if (args.positional.empty()) runtime.budget().fail("loop.cycle needs items to cycle through");
          return args.positional[static_cast<size_t>(loop->index) % args.positional.size()];
        },
        budget_);
  }
  if (name == "changed") budget_.unsupported("loop.changed");
  return Value::undefined(fmt::format("'LoopContext' object has no attribute '{}'", name));
}

}  // namespace lazytrain::text::jinja
