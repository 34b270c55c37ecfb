// The tokens of a template with the questions a parser asks, and its errors.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/jinja/budget.h"
#include "text/jinja/lexer.h"

namespace lazytrain::text::jinja {

class TokenStream {
 public:
  TokenStream(std::vector<Token> tokens, const std::string& where) : tokens_(std::move(tokens)), where_(where) {}

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(pos_ + ahead, tokens_.size() - 1)]; }
  Token next() {
    Token token = peek();
    if (pos_ + 1 < tokens_.size()) ++pos_;
    return token;
  }
  int line() const { return peek().line; }
  bool is(TokenKind kind) const { return peek().kind == kind; }
  bool is_op(std::string_view op, size_t ahead = 0) const {
    return peek(ahead).kind == TokenKind::kOperator && peek(ahead).text == op;
  }
  bool is_name(std::string_view name, size_t ahead = 0) const {
    return peek(ahead).kind == TokenKind::kName && peek(ahead).text == name;
  }
  bool skip_op(std::string_view op) { return is_op(op) && (next(), true); }
  bool skip_name(std::string_view name) { return is_name(name) && (next(), true); }

  std::string expect_name(std::string_view what) {
    if (!is(TokenKind::kName)) fail("{}", what);
    return next().text;
  }
  void expect_op(std::string_view op) {
    if (!skip_op(op)) fail("'{}'", op);
  }
  void expect(TokenKind kind, std::string_view what) {
    if (!is(kind)) fail("{}", what);
    next();
  }

  template <typename... A>
  [[noreturn]] void fail(fmt::format_string<A...> expected, A&&... args) const {
    throw InputError("{}: line {}: expected {}, found {}", where_, line(),
                     fmt::format(expected, std::forward<A>(args)...), describe(peek()));
  }
  [[noreturn]] void unsupported(std::string_view construct, int line) const {
    throw UsageError("{}: line {}: {} is not among the constructs of chat templates known here", where_, line,
                     construct);
  }

  // Counts the nesting of the source while it lives.
  class Level {
   public:
    explicit Level(TokenStream& stream) : stream_(stream) {
      if (++stream_.level_ > kMaxSyntaxDepth) stream_.too_deep();
    }
    ~Level() { --stream_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    TokenStream& stream_;
  };
  [[noreturn]] void too_deep() const {
    throw InputError("{}: line {}: nested more than {} levels deep", where_, line(), kMaxSyntaxDepth);
  }

 private:
  static std::string describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::kEnd:
        return "the end of the template";
      case TokenKind::kData:
        return "text";
      case TokenKind::kVariableBegin:
        return "{{";
      case TokenKind::kVariableEnd:
        return "}}";
      case TokenKind::kBlockBegin:
        return "{%";
      case TokenKind::kBlockEnd:
        return "%}";
      default:
        return fmt::format("'{}'", token.text.substr(0, 60));
    }
  }

  std::vector<Token> tokens_;
  const std::string& where_;
  size_t pos_ = 0;
  int level_ = 0;
};

}  // namespace lazytrain::text::jinja
