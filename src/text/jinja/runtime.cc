#include "text/jinja/runtime.h"

#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/functions.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/tests.h"

namespace lazytrain::text::jinja {

class Runtime::Level {
 public:
  Level(Runtime& runtime, int line) : runtime_(runtime) {
    runtime_.budget_.line = line;
    runtime_.budget_.tick();
    if (++runtime_.depth_ > kMaxRuntimeDepth) {
      --runtime_.depth_;
      runtime_.budget_.fail("calls and expressions nested more than {} deep", kMaxRuntimeDepth);
    }
  }
  ~Level() { --runtime_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Runtime& runtime_;
};

Runtime::Runtime(std::string where) : budget_(std::move(where)), globals_(std::make_shared<Scope>(nullptr)) {
  define_functions(*this);
}

Runtime::~Runtime() {
  for (const auto& each : namespaces_) each->attributes.clear();
}

std::string Runtime::run(const Body& body) {
  std::string out;
  exec(body, std::make_shared<Scope>(globals_), out);
  return out;
}

Value Runtime::make_namespace(Args& args) {
  budget_.tick(8);
  auto made = std::make_shared<Namespace>();
  for (auto& [name, value] : args.keyword) {
    if (name.starts_with("_")) budget_.fail("a namespace takes no attribute that begins with _: '{}'", name);
    made->attributes[name] = value;
  }
  namespaces_.push_back(made);
  return Value(std::move(made));
}

Runtime::Flow Runtime::exec(const Body& body, const ScopePtr& scope, std::string& out) {
  for (const auto& statement : body) {
    const Flow flow = exec(*statement, scope, out);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Runtime::Flow Runtime::exec(const Stmt& statement, const ScopePtr& scope, std::string& out) {
  const Level level(*this, statement.line);
  switch (statement.kind) {
    case StmtKind::kText:
      out += statement.text;
      budget_.tick(1 + static_cast<int64_t>(statement.text.size() / 32));
      break;
    case StmtKind::kPrint:
      append_str(out, eval(*statement.value, scope), budget_);
      break;
    case StmtKind::kIf:
      return exec_if(statement, scope, out);
    case StmtKind::kFor:
      return exec_for(statement, scope, out);
    case StmtKind::kSet:
      assign(statement.target, eval(*statement.value, scope), scope);
      break;
    case StmtKind::kSetBlock:
      exec_set(statement, scope);
      break;
    case StmtKind::kMacro:
      scope->names[statement.text] = make_macro(statement.text, statement, scope);
      break;
    case StmtKind::kCall:
      exec_call(statement, scope, out);
      break;
    case StmtKind::kFilter: {
      const Value text(capture(statement.body, scope));
      append_str(out, eval_filter(*statement.value, &text, scope), budget_);
      break;
    }
    case StmtKind::kWith:
      exec_with(statement, scope, out);
      break;
    case StmtKind::kScope:
      return exec(statement.body, std::make_shared<Scope>(scope), out);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  if (out.size() > static_cast<size_t>(kMaxTextBytes)) budget_.text(out.size());
  return Flow::kNext;
}

Runtime::Flow Runtime::exec_if(const Stmt& statement, const ScopePtr& scope, std::string& out) {
  for (const auto& [condition, body] : statement.branches) {
    if (truthy(eval(*condition, scope))) return exec(body, scope, out);
  }
  return exec(statement.otherwise, scope, out);
}

Runtime::Flow Runtime::exec_for(const Stmt& statement, const ScopePtr& scope, std::string& out) {
  auto loop = std::make_shared<LoopState>();
  loop->items = iterate(eval(*statement.value, scope), budget_);
  if (statement.condition) {
    Values kept;
    for (const Value& value : loop->items) {
      const auto inner = std::make_shared<Scope>(scope);
      assign(statement.target, value, inner);
      if (truthy(eval(*statement.condition, inner))) kept.push_back(value);
    }
    loop->items = std::move(kept);
  }
  loop->depth = 1 + depth_of(loop->items);
  if (loop->depth > kMaxValueDepth) budget_.fail("loops over values nested more than {} deep", kMaxValueDepth);
  for (; loop->index < static_cast<int64_t>(loop->items.size()); ++loop->index) {
    budget_.tick();
    const auto inner = std::make_shared<Scope>(scope);
    inner->names["loop"] = Value(loop);
    assign(statement.target, loop->items[static_cast<size_t>(loop->index)], inner);
    const Flow flow = exec(statement.body, inner, out);
    if (flow == Flow::kBreak) break;
  }
  if (!loop->items.empty() || statement.otherwise.empty()) return Flow::kNext;
  return exec(statement.otherwise, std::make_shared<Scope>(scope), out);
}

std::string Runtime::capture(const Body& body, const ScopePtr& around) {
  std::string out;
  exec(body, std::make_shared<Scope>(around), out);
  return out;
}

void Runtime::exec_set(const Stmt& statement, const ScopePtr& scope) {
  Value text(capture(statement.body, scope));
  if (statement.value) text = eval_filter(*statement.value, &text, scope);
  assign(statement.target, text, scope);
}

void Runtime::exec_call(const Stmt& statement, const ScopePtr& scope, std::string& out) {
  const Value callee = eval(*statement.value->children[0], scope);
  Args args = eval_arguments(*statement.value, scope);
  args.keyword.emplace_back("caller", make_macro("caller", statement, scope));
  append_str(out, call(callee, args), budget_);
}

void Runtime::exec_with(const Stmt& statement, const ScopePtr& scope, std::string& out) {
  const auto inner = std::make_shared<Scope>(scope);
  Values values;  // all are evaluated in the scope around
  for (const auto& [target, expression] : statement.assignments) values.push_back(eval(*expression, scope));
  for (size_t i = 0; i < values.size(); ++i) assign(statement.assignments[i].first, values[i], inner);
  exec(statement.body, inner, out);
}

// The scope is held weakly: it holds the macro itself.
Value Runtime::make_macro(const std::string& name, const Stmt& statement, const ScopePtr& scope) {
  const std::weak_ptr<Scope> around = scope;
  auto run = [name, &statement, around](Runtime& runtime, Args& args) {
    const ScopePtr alive = around.lock();
    if (!alive) runtime.budget_.unsupported("calling the macro '{}' outside the block that defines it", name);
    return runtime.run_macro(name, statement, alive, args);
  };
  return Value(std::make_shared<const Callable>(Callable{name, std::move(run)}));
}

Value Runtime::run_macro(const std::string& name, const Stmt& statement, const ScopePtr& scope, Args& args) {
  const Level level(*this, statement.line);
  const auto inner = std::make_shared<Scope>(scope);
  const size_t places = statement.parameters.size();
  if (args.positional.size() > places) budget_.fail("macro '{}' takes not more than {} arguments", name, places);
  for (const auto& [keyword, value] : args.keyword) {
    const bool known =
        keyword == "caller" || std::any_of(statement.parameters.begin(), statement.parameters.end(),
                                           [&wanted = keyword](const Parameter& p) { return p.name == wanted; });
    if (!known) budget_.fail("macro '{}' takes no argument '{}'", name, keyword);
    if (!inner->names.emplace(keyword, value).second) budget_.fail("macro '{}' got '{}' twice", name, keyword);
  }
  for (size_t i = 0; i < places; ++i) {
    const Parameter& parameter = statement.parameters[i];
    if (i < args.positional.size()) {
      if (!inner->names.emplace(parameter.name, args.positional[i]).second) {
        budget_.fail("macro '{}' got multiple values for the argument '{}'", name, parameter.name);
      }
    } else if (!inner->names.contains(parameter.name)) {
      Value value = parameter.otherwise
                        ? eval(*parameter.otherwise, inner)
                        : Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name));
      inner->names[parameter.name] = std::move(value);
    }
  }
  std::string out;
  exec(statement.body, inner, out);
  return make_string(std::move(out), budget_);
}

void Runtime::assign(const Target& target, const Value& value, const ScopePtr& scope) {
  if (!target.elements.empty()) {
    const Values items = iterate(value, budget_);
    if (items.size() != target.elements.size()) {
      budget_.fail("{} values to unpack, expected {}", items.size(), target.elements.size());
    }
    for (size_t i = 0; i < items.size(); ++i) assign(target.elements[i], items[i], scope);
  } else if (target.attribute.empty()) {
    scope->names[target.name] = value;
  } else {
    const Value* object = scope->find(target.name);
    const auto* space = object != nullptr ? object->get<NamespacePtr>() : nullptr;
    if (space == nullptr)
      budget_.fail("cannot assign attribute '{}': '{}' is no namespace", target.attribute, target.name);
    if (target.attribute.starts_with("_")) {
      budget_.fail("a namespace takes no attribute that begins with _: '{}'", target.attribute);
    }
    (*space)->attributes[target.attribute] = value;
  }
}

}  // namespace lazytrain::text::jinja
