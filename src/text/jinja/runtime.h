// Runs a parsed template.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace lazytrain::text::jinja {

// Names of one block; a look-up goes on in the block around it.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> around) : parent(std::move(around)) {}
  const Value* find(const std::string& name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
      if (const auto it = scope->names.find(name); it != scope->names.end()) return &it->second;
    }
    return nullptr;
  }
  std::unordered_map<std::string, Value> names;
  std::shared_ptr<Scope> parent;
};
using ScopePtr = std::shared_ptr<Scope>;

class Runtime {
 public:
  explicit Runtime(std::string where);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Budget& budget() { return budget_; }
  void define(const std::string& name, Value value) { globals_->names[name] = std::move(value); }
  std::string run(const Body& body);

  Value call(const Value& callee, Args& args);
  Value attribute(const Value& object, const std::string& name);  // object.name
  Value item(const Value& object, const Value& key);              // object[key]
  Value make_namespace(Args& args);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  class Level;

  Flow exec(const Body& body, const ScopePtr& scope, std::string& out);
  Flow exec(const Stmt& statement, const ScopePtr& scope, std::string& out);
  Flow exec_if(const Stmt& statement, const ScopePtr& scope, std::string& out);
  Flow exec_for(const Stmt& statement, const ScopePtr& scope, std::string& out);
  void exec_set(const Stmt& statement, const ScopePtr& scope);
  void exec_call(const Stmt& statement, const ScopePtr& scope, std::string& out);
  void exec_with(const Stmt& statement, const ScopePtr& scope, std::string& out);
  std::string capture(const Body& body, const ScopePtr& around);
  Value make_macro(const std::string& name, const Stmt& statement, const ScopePtr& scope);
  Value run_macro(const std::string& name, const Stmt& statement, const ScopePtr& scope, Args& args);
  void assign(const Target& target, const Value& value, const ScopePtr& scope);

  Value eval(const Expr& node, const ScopePtr& scope);
  Value eval_binary(const Expr& node, const ScopePtr& scope);
  Value eval_compare(const Expr& node, const ScopePtr& scope);
  Value eval_conditional(const Expr& node, const ScopePtr& scope);
  Value eval_slice(const Expr& node, const ScopePtr& scope);
  Value eval_call(const Expr& node, const ScopePtr& scope);
  Value eval_dict(const Expr& node, const ScopePtr& scope);
  Values eval_children(const Expr& node, size_t from, const ScopePtr& scope);
  Args eval_arguments(const Expr& node, const ScopePtr& scope);
  // node is a filter over `operand`, or over filters that end in it.
  Value eval_filter(const Expr& node, const Value* operand, const ScopePtr& scope);
  Value eval_name(const Expr& node, const ScopePtr& scope);
  Value loop_attribute(const LoopPtr& loop, const std::string& name);

  Budget budget_;
  ScopePtr globals_;
  int depth_ = 0;
  std::vector<NamespacePtr> namespaces_;  // emptied at the end: they may hold each other
};

}  // namespace lazytrain::text::jinja
