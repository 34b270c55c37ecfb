// The tree of a parsed template. Nesting is bounded by kMaxSyntaxDepth, so that walks over it may recurse.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace lazytrain::text::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind : uint8_t {
  kConstant,
  kName,
  kList,         // children
  kTuple,        // children
  kDict,         // children: key, value, key, value, ...
  kUnary,        // name is "-", "+" or "not"
  kBinary,       // name is the operator; "and", "or" and "~" too
  kCompare,      // children[0] compared by operators[i] with children[i + 1], chained as Python does
  kConditional,  // children: condition, then, else (null when absent)
  kAttribute,    // children[0].name
  kSubscript,    // children[0][children[1]]
  kSlice,        // children[0][1:2:3], absent ones null
  kCall,         // children[0] is called with the rest and keywords
  kFilter,       // children[0] | name(rest, keywords); in a filter block children[0] is null
  kTest,         // children[0] is name(rest, keywords)
};

struct Expr {
  ExprKind kind;
  int line;
  int depth = 1;
  std::string name;
  Value constant;
  std::vector<ExprPtr> children;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  std::vector<std::string> operators;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

// What a for or set assigns to: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::string name;
  std::string attribute;         // of the namespace `name`, else empty
  std::vector<Target> elements;  // of a tuple, else empty
};

struct Parameter {
  std::string name;
  ExprPtr otherwise;  // null: undefined when not given
};

enum class StmtKind : uint8_t {
  kText,      // text
  kPrint,     // value
  kIf,        // branches, otherwise
  kFor,       // target, value, condition or null, body, otherwise
  kSet,       // target, value
  kSetBlock,  // target, body, value: a filter or null
  kMacro,     // text is its name; parameters, body
  kCall,      // value is the call; parameters and body of its caller
  kFilter,    // value is the filter, body
  kWith,      // assignments, body
  kScope,     // body: what a generation block holds
  kBreak,
  kContinue,
};

struct Stmt {
  StmtKind kind;
  int line;
  std::string text;
  ExprPtr value;
  ExprPtr condition;
  Target target;
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::vector<std::pair<Target, ExprPtr>> assignments;
  std::vector<Parameter> parameters;
  Body body;
  Body otherwise;
};

}  // namespace lazytrain::text::jinja
