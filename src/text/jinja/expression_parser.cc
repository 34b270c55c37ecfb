#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>

#include "text/jinja/filters.h"
#include "text/jinja/tests.h"

namespace lazytrain::text::jinja {

ExprPtr ExpressionParser::make(ExprKind kind, int line, std::string name) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = line;
  node->name = std::move(name);
  return node;
}

void ExpressionParser::add(Expr& parent, ExprPtr child) const {
  if (child) parent.depth = std::max(parent.depth, child->depth + 1);
  // A long chain of operators is deep without nested source.
  if (parent.depth > kMaxSyntaxDepth) stream_.too_deep();
  parent.children.push_back(std::move(child));
}

ExprPtr ExpressionParser::binary(std::string op, ExprPtr left, ExprPtr right, int line) const {
  auto node = make(ExprKind::kBinary, line, std::move(op));
  add(*node, std::move(left));
  add(*node, std::move(right));
  return node;
}

ExprPtr ExpressionParser::expression(bool with_conditional) {
  const TokenStream::Level level(stream_);
  return with_conditional ? conditional() : logical_or();
}

ExprPtr ExpressionParser::tuple(bool with_conditional) {
  const int line = stream_.line();
  ExprPtr first = expression(with_conditional);
  if (!stream_.is_op(",")) return first;
  auto node = make(ExprKind::kTuple, line);
  add(*node, std::move(first));
  while (stream_.skip_op(",")) {
    if (stream_.is(TokenKind::kVariableEnd) || stream_.is(TokenKind::kBlockEnd) || stream_.is_op(")")) break;
    add(*node, expression(with_conditional));
  }
  return node;
}

ExprPtr ExpressionParser::conditional() {
  ExprPtr node = logical_or();
  while (stream_.is_name("if")) {
    const int line = stream_.next().line;
    auto chosen = make(ExprKind::kConditional, line);
    add(*chosen, logical_or());
    add(*chosen, std::move(node));
    add(*chosen, stream_.skip_name("else") ? expression() : nullptr);
    node = std::move(chosen);
  }
  return node;
}

ExprPtr ExpressionParser::logical_or() {
  ExprPtr node = logical_and();
  while (stream_.is_name("or")) {
    const int line = stream_.next().line;
    node = binary("or", std::move(node), logical_and(), line);
  }
  return node;
}

ExprPtr ExpressionParser::logical_and() {
  ExprPtr node = logical_not();
  while (stream_.is_name("and")) {
    const int line = stream_.next().line;
    node = binary("and", std::move(node), logical_not(), line);
  }
  return node;
}

ExprPtr ExpressionParser::logical_not() {
  if (!stream_.is_name("not")) return comparison();
  const TokenStream::Level level(stream_);
  auto node = make(ExprKind::kUnary, stream_.next().line, "not");
  add(*node, logical_not());
  return node;
}

ExprPtr ExpressionParser::comparison() {
  static constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
  const int line = stream_.line();
  ExprPtr first = sum();
  auto node = make(ExprKind::kCompare, line);
  const auto compare = [&](std::string op) {
    if (first) add(*node, std::move(first));
    node->operators.push_back(std::move(op));
    add(*node, sum());
  };
  for (;;) {
    const bool known = std::any_of(std::begin(kOperators), std::end(kOperators),
                                   [&](std::string_view op) { return stream_.is_op(op); });
    if (known) {
      compare(stream_.next().text);
    } else if (stream_.skip_name("in")) {
      compare("in");
    } else if (stream_.is_name("not") && stream_.is_name("in", 1)) {
      stream_.next();
      stream_.next();
      compare("not in");
    } else {
      break;
    }
  }
  return node->operators.empty() ? std::move(first) : std::move(node);
}

ExprPtr ExpressionParser::sum() {
  ExprPtr node = concatenation();
  while (stream_.is_op("+") || stream_.is_op("-")) {
    const Token op = stream_.next();
    node = binary(op.text, std::move(node), concatenation(), op.line);
  }
  return node;
}

ExprPtr ExpressionParser::concatenation() {
  ExprPtr node = product();
  while (stream_.is_op("~")) {
    const int line = stream_.next().line;
    node = binary("~", std::move(node), product(), line);
  }
  return node;
}

ExprPtr ExpressionParser::product() {
  ExprPtr node = power();
  while (stream_.is_op("*") || stream_.is_op("/") || stream_.is_op("//") || stream_.is_op("%")) {
    const Token op = stream_.next();
    node = binary(op.text, std::move(node), power(), op.line);
  }
  return node;
}

ExprPtr ExpressionParser::power() {
  ExprPtr node = unary();
  while (stream_.is_op("**")) {
    const int line = stream_.next().line;
    node = binary("**", std::move(node), unary(), line);
  }
  return node;
}

ExprPtr ExpressionParser::unary(bool with_filter) {
  ExprPtr node;
  if (stream_.is_op("-") || stream_.is_op("+")) {
    const TokenStream::Level level(stream_);
    const Token op = stream_.next();
    node = make(ExprKind::kUnary, op.line, op.text);
    add(*node, unary(false));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filter ? filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr ExpressionParser::primary() {
  const int line = stream_.line();
  switch (stream_.peek().kind) {
    case TokenKind::kName:
      return name_or_constant();
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return number();
    case TokenKind::kString: {
      std::string text;
      while (stream_.is(TokenKind::kString)) text += stream_.next().text;
      auto node = make(ExprKind::kConstant, line);
      node->constant = Value(std::move(text));
      return node;
    }
    default:
      break;
  }
  if (stream_.is_op("(")) return parenthesised();
  if (stream_.is_op("[")) return list();
  if (stream_.is_op("{")) return dict();
  stream_.fail("an expression");
}

ExprPtr ExpressionParser::name_or_constant() {
  const Token token = stream_.next();
  auto node = make(ExprKind::kConstant, token.line);
  if (token.text == "true" || token.text == "True") {
    node->constant = Value(true);
  } else if (token.text == "false" || token.text == "False") {
    node->constant = Value(false);
  } else if (token.text == "none" || token.text == "None") {
    node->constant = Value::none();
  } else {
    node->kind = ExprKind::kName;
    node->name = token.text;
  }
  return node;
}

ExprPtr ExpressionParser::number() {
  const Token token = stream_.peek();
  auto node = make(ExprKind::kConstant, token.line);
  if (token.kind == TokenKind::kFloat) {
    node->constant = Value(std::strtod(token.text.c_str(), nullptr));
    stream_.next();
    return node;
  }
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0') {
    const char letter = static_cast<char>(digits[1] | 0x20);
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    if (base != 10) digits.remove_prefix(2);
  }
  int64_t whole = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), whole, base);
  if (error != std::errc() || end != digits.data() + digits.size()) stream_.fail("a whole number of at most 64 bits");
  node->constant = Value(whole);
  stream_.next();
  return node;
}

ExprPtr ExpressionParser::parenthesised() {
  const int line = stream_.next().line;
  ExprPtr node = stream_.is_op(")") ? make(ExprKind::kTuple, line) : tuple();
  stream_.expect_op(")");
  return node;
}

ExprPtr ExpressionParser::list() {
  auto node = make(ExprKind::kList, stream_.next().line);
  while (!stream_.is_op("]")) {
    if (!node->children.empty()) stream_.expect_op(",");
    if (stream_.is_op("]")) break;
    add(*node, expression());
  }
  stream_.expect_op("]");
  return node;
}

ExprPtr ExpressionParser::dict() {
  auto node = make(ExprKind::kDict, stream_.next().line);
  while (!stream_.is_op("}")) {
    if (!node->children.empty()) stream_.expect_op(",");
    if (stream_.is_op("}")) break;
    add(*node, expression());
    stream_.expect_op(":");
    add(*node, expression());
  }
  stream_.expect_op("}");
  return node;
}

ExprPtr ExpressionParser::postfix(ExprPtr node) {
  for (;;) {
    if (stream_.is_op(".") || stream_.is_op("[")) {
      node = subscript(std::move(node));
    } else if (stream_.is_op("(")) {
      auto call = make(ExprKind::kCall, stream_.line());
      add(*call, std::move(node));
      arguments(*call);
      node = std::move(call);
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::filters_and_tests(ExprPtr node) {
  for (;;) {
    if (stream_.skip_op("|")) {
      node = filter(std::move(node));
    } else if (stream_.skip_name("is")) {
      node = test(std::move(node));
    } else if (stream_.is_op("(")) {
      auto call = make(ExprKind::kCall, stream_.line());
      add(*call, std::move(node));
      arguments(*call);
      node = std::move(call);
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::subscript(ExprPtr node) {
  const Token open = stream_.next();
  if (open.text == ".") {
    if (stream_.is(TokenKind::kInteger)) {
      auto item = make(ExprKind::kSubscript, open.line);
      add(*item, std::move(node));
      add(*item, number());
      return item;
    }
    auto attribute = make(ExprKind::kAttribute, open.line, stream_.expect_name("a name or a number behind '.'"));
    add(*attribute, std::move(node));
    return attribute;
  }
  ExprPtr parts[3];
  int colons = 0;
  if (!stream_.is_op(":")) parts[0] = expression();
  while (colons < 2 && stream_.skip_op(":")) {
    ++colons;
    if (!stream_.is_op(":") && !stream_.is_op("]")) parts[colons] = expression();
  }
  if (stream_.is_op(",")) stream_.unsupported("a subscript with a comma", stream_.line());
  stream_.expect_op("]");
  auto item = make(colons == 0 ? ExprKind::kSubscript : ExprKind::kSlice, open.line);
  add(*item, std::move(node));
  for (int i = 0; i < (colons == 0 ? 1 : 3); ++i) add(*item, std::move(parts[i]));
  return item;
}

std::string ExpressionParser::dotted_name(std::string_view what) {
  std::string name = stream_.expect_name(what);
  while (stream_.skip_op(".")) name.append(".").append(stream_.expect_name(what));
  return name;
}

ExprPtr ExpressionParser::filter(ExprPtr node) {
  const int line = stream_.line();
  auto filtered = make(ExprKind::kFilter, line, dotted_name("the name of a filter"));
  if (!is_filter(filtered->name)) stream_.unsupported(fmt::format("the filter '{}'", filtered->name), line);
  add(*filtered, std::move(node));
  if (stream_.is_op("(")) arguments(*filtered);
  return filtered;
}

ExprPtr ExpressionParser::filter_chain(ExprPtr node) {
  node = filter(std::move(node));
  while (stream_.skip_op("|")) node = filter(std::move(node));
  return node;
}

ExprPtr ExpressionParser::test(ExprPtr node) {
  const int line = stream_.line();
  const bool negated = stream_.skip_name("not");
  auto tested = make(ExprKind::kTest, line, dotted_name("the name of a test"));
  if (!is_test(tested->name)) stream_.unsupported(fmt::format("the test '{}'", tested->name), line);
  add(*tested, std::move(node));
  const TokenKind kind = stream_.peek().kind;
  const bool ends = stream_.is_name("else") || stream_.is_name("or") || stream_.is_name("and");
  if (stream_.is_op("(")) {
    arguments(*tested);
  } else if ((kind == TokenKind::kName && !ends) || kind == TokenKind::kString || kind == TokenKind::kInteger ||
             kind == TokenKind::kFloat || stream_.is_op("[") || stream_.is_op("{")) {
    if (stream_.is_name("is")) stream_.fail("no second test in a chain");
    add(*tested, postfix(primary()));
  }
  if (!negated) return tested;
  auto inverse = make(ExprKind::kUnary, line, "not");
  add(*inverse, std::move(tested));
  return inverse;
}

void ExpressionParser::arguments(Expr& call) {
  const TokenStream::Level level(stream_);
  stream_.expect_op("(");
  bool first = true;
  while (!stream_.is_op(")")) {
    if (!first) stream_.expect_op(",");
    first = false;
    if (stream_.is_op(")")) break;
    if (stream_.is_op("*") || stream_.is_op("**")) stream_.unsupported("a call with * or **", stream_.line());
    if (stream_.is(TokenKind::kName) && stream_.is_op("=", 1)) {
      std::string name = stream_.next().text;
      stream_.next();
      ExprPtr value = expression();
      call.depth = std::max(call.depth, value->depth + 1);
      call.keywords.emplace_back(std::move(name), std::move(value));
    } else {
      if (!call.keywords.empty()) stream_.fail("a keyword argument behind a keyword argument");
      add(call, expression());
    }
  }
  stream_.expect_op(")");
  if (call.depth > kMaxSyntaxDepth) stream_.too_deep();
}

ExprPtr ExpressionParser::primary_call() {
  ExprPtr node = postfix(primary());
  if (node->kind != ExprKind::kCall) stream_.fail("a call");
  return node;
}

}  // namespace lazytrain::text::jinja
