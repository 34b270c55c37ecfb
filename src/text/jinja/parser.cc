#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "text/jinja/expression_parser.h"

namespace lazytrain::text::jinja {
namespace {

class StatementParser {
 public:
  explicit StatementParser(TokenStream& stream) : stream_(stream), expressions_(stream) {}

  // Statements up to a block whose tag is one of `ends` (left standing behind its "{%"); none: to the end.
  Body body(std::initializer_list<std::string_view> ends) {
    const TokenStream::Level level(stream_);
    Body out;
    for (;;) {
      if (stream_.is(TokenKind::kEnd)) {
        if (ends.size() == 0) return out;
        stream_.fail("{{% {} %}}", *ends.begin());
      }
      if (stream_.is(TokenKind::kData)) {
        auto text = make(StmtKind::kText);
        text->text = stream_.next().text;
        out.push_back(std::move(text));
      } else if (stream_.is(TokenKind::kVariableBegin)) {
        stream_.next();
        auto print = make(StmtKind::kPrint);
        print->value = expressions_.tuple();
        stream_.expect(TokenKind::kVariableEnd, "}}");
        out.push_back(std::move(print));
      } else {
        stream_.expect(TokenKind::kBlockBegin, "a tag");
        if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return stream_.is_name(end); }))
          return out;
        out.push_back(block());
      }
    }
  }

 private:
  std::unique_ptr<Stmt> make(StmtKind kind) const {
    auto statement = std::make_unique<Stmt>();
    statement->kind = kind;
    statement->line = stream_.line();
    return statement;
  }
  void block_end() { stream_.expect(TokenKind::kBlockEnd, "%}"); }
  // The body up to its end tag, which is read.
  Body body_until(std::string_view end) {
    Body out = body({end});
    stream_.next();
    block_end();
    return out;
  }

  std::unique_ptr<Stmt> block() {
    const int line = stream_.line();
    const std::string tag = stream_.expect_name("the name of a tag");
    if (tag == "if") return if_statement();
    if (tag == "for") return for_statement();
    if (tag == "set") return set_statement();
    if (tag == "macro") return macro_statement();
    if (tag == "call") return call_statement();
    if (tag == "filter") return filter_statement();
    if (tag == "with") return with_statement();
    if (tag == "generation") return generation_statement();
    if (tag == "break" || tag == "continue") return loop_control(tag, line);
    static constexpr std::string_view kKnown[] = {"block",      "extends", "include", "import", "from",
                                                  "autoescape", "print",   "do",      "trans",  "debug"};
    if (std::find(std::begin(kKnown), std::end(kKnown), tag) != std::end(kKnown)) {
      stream_.unsupported(fmt::format("the tag '{}'", tag), line);
    }
    stream_.fail("a tag that Jinja knows instead of '{}'", tag);
  }

  std::unique_ptr<Stmt> if_statement() {
    auto statement = make(StmtKind::kIf);
    for (;;) {
      ExprPtr condition = expressions_.tuple(false);
      block_end();
      Body taken = body({"endif", "elif", "else"});
      statement->branches.emplace_back(std::move(condition), std::move(taken));
      if (stream_.skip_name("elif")) continue;
      if (stream_.skip_name("else")) {
        block_end();
        statement->otherwise = body({"endif"});
      }
      stream_.next();  // endif
      block_end();
      return statement;
    }
  }

  std::unique_ptr<Stmt> for_statement() {
    auto statement = make(StmtKind::kFor);
    statement->target = target(false);
    if (!stream_.skip_name("in")) stream_.fail("'in'");
    statement->value = expressions_.tuple(false);
    if (stream_.skip_name("if")) statement->condition = expressions_.expression();
    if (stream_.is_name("recursive")) stream_.unsupported("a recursive loop", stream_.line());
    block_end();
    ++loops_;
    statement->body = body({"endfor", "else"});
    --loops_;
    if (stream_.next().text == "else") {
      block_end();
      statement->otherwise = body({"endfor"});
      stream_.next();
    }
    block_end();
    return statement;
  }

  Target target(bool with_namespace) {
    Target first = single_target(with_namespace);
    if (!stream_.is_op(",")) return first;
    Target tuple;
    tuple.elements.push_back(std::move(first));
    while (stream_.skip_op(",")) {
      if (!stream_.is(TokenKind::kName) && !stream_.is_op("(")) break;
      if (stream_.is_name("in")) break;
      tuple.elements.push_back(single_target(with_namespace));
    }
    return tuple;
  }

  Target single_target(bool with_namespace) {
    const TokenStream::Level level(stream_);
    Target out;
    if (stream_.skip_op("(")) {
      out = target(with_namespace);
      stream_.expect_op(")");
      return out;
    }
    out.name = stream_.expect_name("a name to assign to");
    static constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
    if (std::find(std::begin(kReserved), std::end(kReserved), out.name) != std::end(kReserved)) {
      stream_.fail("a name to assign to instead of the constant '{}'", out.name);
    }
    if (with_namespace && stream_.skip_op(".")) out.attribute = stream_.expect_name("an attribute of a namespace");
    return out;
  }

  std::unique_ptr<Stmt> set_statement() {
    auto statement = make(StmtKind::kSet);
    statement->target = target(true);
    if (stream_.skip_op("=")) {
      statement->value = expressions_.tuple();
      block_end();
      return statement;
    }
    statement->kind = StmtKind::kSetBlock;
    if (stream_.skip_op("|")) statement->value = expressions_.filter_chain(nullptr);
    block_end();
    statement->body = without_loop([&] { return body_until("endset"); });
    return statement;
  }

  std::vector<Parameter> parameters() {
    std::vector<Parameter> out;
    stream_.expect_op("(");
    while (!stream_.is_op(")")) {
      if (!out.empty()) stream_.expect_op(",");
      if (stream_.is_op(")")) break;
      Parameter parameter;
      parameter.name = stream_.expect_name("the name of a parameter");
      if (stream_.skip_op("=")) {
        parameter.otherwise = expressions_.expression();
      } else if (!out.empty() && out.back().otherwise) {
        stream_.fail("a default, as the parameter before has one");
      }
      out.push_back(std::move(parameter));
    }
    stream_.expect_op(")");
    return out;
  }

  std::unique_ptr<Stmt> macro_statement() {
    auto statement = make(StmtKind::kMacro);
    statement->text = stream_.expect_name("the name of a macro");
    statement->parameters = parameters();
    block_end();
    statement->body = without_loop([&] { return body_until("endmacro"); });
    return statement;
  }

  std::unique_ptr<Stmt> call_statement() {
    auto statement = make(StmtKind::kCall);
    if (stream_.is_op("(")) statement->parameters = parameters();
    statement->value = expressions_.primary_call();
    block_end();
    statement->body = without_loop([&] { return body_until("endcall"); });
    return statement;
  }

  std::unique_ptr<Stmt> filter_statement() {
    auto statement = make(StmtKind::kFilter);
    statement->value = expressions_.filter_chain(nullptr);
    block_end();
    statement->body = body_until("endfilter");
    return statement;
  }

  std::unique_ptr<Stmt> with_statement() {
    auto statement = make(StmtKind::kWith);
    while (!stream_.is(TokenKind::kBlockEnd)) {
      if (!statement->assignments.empty()) stream_.expect_op(",");
      Target assigned = single_target(false);
      stream_.expect_op("=");
      statement->assignments.emplace_back(std::move(assigned), expressions_.expression());
    }
    block_end();
    statement->body = body_until("endwith");
    return statement;
  }

  std::unique_ptr<Stmt> generation_statement() {
    auto statement = make(StmtKind::kScope);
    block_end();
    statement->body = without_loop([&] { return body_until("endgeneration"); });
    return statement;
  }

  std::unique_ptr<Stmt> loop_control(const std::string& tag, int line) {
    auto statement = make(tag == "break" ? StmtKind::kBreak : StmtKind::kContinue);
    statement->line = line;
    if (loops_ == 0) stream_.fail("a loop around '{}'", tag);
    block_end();
    return statement;
  }

  // A macro or captured block is no part of the loop around it.
  template <typename F>
  Body without_loop(F&& parse) {
    const int around = std::exchange(loops_, 0);
    Body out = parse();
    loops_ = around;
    return out;
  }

  TokenStream& stream_;
  ExpressionParser expressions_;
  int loops_ = 0;
};

}  // namespace

Body parse_template(std::string_view source, const std::string& where) {
  TokenStream stream(tokenize(source, where), where);
  return StatementParser(stream).body({});
}

}  // namespace lazytrain::text::jinja
