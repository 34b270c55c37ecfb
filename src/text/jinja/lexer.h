// Cuts a template into text and the tokens of its tags, as Jinja does with trim_blocks and lstrip_blocks on: newlines
// are made LF, one at the end of the template is dropped, comments and raw blocks are resolved.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lazytrain::text::jinja {

enum class TokenKind : uint8_t {
  kData,  // text between tags
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,  // unescaped
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;
};

// Throws InputError naming `where` and the line. The last token is kEnd.
std::vector<Token> tokenize(std::string_view source, const std::string& where);

}  // namespace lazytrain::text::jinja
