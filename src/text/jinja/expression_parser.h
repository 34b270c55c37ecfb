// Expressions of a template.
#pragma once

#include "text/jinja/ast.h"
#include "text/jinja/token_stream.h"

namespace lazytrain::text::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  // With `conditional` off an if behind the expression is not part of it (it filters a for).
  ExprPtr expression(bool conditional = true);
  // One expression, or several with commas between them as a tuple.
  ExprPtr tuple(bool conditional = true);
  // The chain "name(args) | name..." behind a filter block's or a block set's bar.
  ExprPtr filter_chain(ExprPtr operand);
  ExprPtr primary_call();  // the call of a call block

 private:
  using Rule = ExprPtr (ExpressionParser::*)();

  ExprPtr conditional();
  ExprPtr logical_or();
  ExprPtr logical_and();
  ExprPtr logical_not();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter = true);
  ExprPtr primary();
  ExprPtr name_or_constant();
  ExprPtr number();
  ExprPtr parenthesised();
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr node);
  ExprPtr filters_and_tests(ExprPtr node);
  ExprPtr subscript(ExprPtr node);
  ExprPtr test(ExprPtr node);
  ExprPtr filter(ExprPtr node);
  void arguments(Expr& call);
  std::string dotted_name(std::string_view what);

  ExprPtr make(ExprKind kind, int line, std::string name = {}) const;
  void add(Expr& parent, ExprPtr child) const;
  ExprPtr binary(std::string op, ExprPtr left, ExprPtr right, int line) const;

  TokenStream& stream_;
};

}  // namespace lazytrain::text::jinja
