#include "text/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/error.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace lazytrain::text {
namespace {

constexpr size_t kMaxBytes = 4096;  // of one token's content: matching takes at most this many steps a byte

// Word characters as Unicode's regular expressions define them: Alphabetic, M, Nd, Pc and Join_Control.
bool is_word(char32_t c) {
  if (c == 0x200C || c == 0x200D) return true;
  // Letters of category So that are Alphabetic.
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
      (c >= 0x1F170 && c <= 0x1F189)) {
    return true;
  }
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  return (begin == 0 || !is_word(code_point_before(text, begin).value)) &&
         (end == text.size() || !is_word(code_point_at(text, end).value));
}

}  // namespace

std::vector<AddedToken> parse_added_tokens(const Json& list, const std::string& where) {
  std::vector<AddedToken> tokens;
  if (list.is_null()) return tokens;
  if (!list.is_array()) throw InputError("{}: expected a list, found {}", where, list.type_name());
  for (const Json& entry : list) {
    const JsonObject object(entry, fmt::format("{}[{}]", where, tokens.size()));
    AddedToken token;
    token.content = object.string("content");
    token.id = static_cast<int32_t>(object.integer("id", 0, Vocabulary::kMaxId - 1));
    token.single_word = object.boolean_or("single_word", false);
    token.lstrip = object.boolean_or("lstrip", false);
    token.rstrip = object.boolean_or("rstrip", false);
    token.special = object.boolean_or("special", false);
    token.normalized = object.boolean_or("normalized", !token.special);
    if (token.content.empty() || token.content.size() > kMaxBytes) {
      throw InputError("{}: \"content\" has {} bytes, expected 1 to {}", object.where(), token.content.size(),
                       kMaxBytes);
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

int32_t AddedTokenMatcher::child(int32_t node, unsigned char byte) const {
  for (const auto& [key, next] : nodes_[static_cast<size_t>(node)].next) {
    if (key == byte) return next;
  }
  return -1;
}

void AddedTokenMatcher::add(const AddedToken& token, std::string_view pattern) {
  int32_t node = 0;
  for (const char c : pattern) {
    const auto byte = static_cast<unsigned char>(c);
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_[static_cast<size_t>(node)].next.emplace_back(byte, next);
      nodes_.emplace_back();
    }
    node = next;
  }
  // Two tokens may have one normal form: the first is the one that is found.
  if (nodes_[static_cast<size_t>(node)].token >= 0) return;
  nodes_[static_cast<size_t>(node)].token = static_cast<int32_t>(tokens_.size());
  begins_[static_cast<unsigned char>(pattern.front())] = true;
  tokens_.push_back(token);
}

std::optional<AddedTokenMatcher::Found> AddedTokenMatcher::longest_at(std::string_view text, size_t at) const {
  std::optional<Found> found;
  int32_t node = 0;
  while (at < text.size()) {
    node = child(node, static_cast<unsigned char>(text[at]));
    if (node < 0) break;
    ++at;
    const int32_t token = nodes_[static_cast<size_t>(node)].token;
    if (token >= 0) found = Found{at, &tokens_[static_cast<size_t>(token)]};
  }
  return found;
}

void AddedTokenMatcher::split(std::string_view text, const TextSink& on_text, const TokenSink& on_token) const {
  if (tokens_.empty()) return on_text(text);
  size_t done = 0;  // what is before has been handed out
  for (size_t at = 0; at < text.size();) {
    const auto found = begins_[static_cast<unsigned char>(text[at])] ? longest_at(text, at) : std::nullopt;
    if (!found) {
      ++at;
      continue;
    }
    size_t begin = at, end = found->end;
    at = end;
    if (found->token->single_word && !stands_alone(text, begin, end)) continue;
    if (found->token->lstrip) {
      while (begin > done) {
        const CodePoint point = code_point_before(text, begin);
        if (!is_white_space(point.value)) break;
        begin -= point.bytes;
      }
    }
    if (found->token->rstrip) {
      while (end < text.size()) {
        const CodePoint point = code_point_at(text, end);
        if (!is_white_space(point.value)) break;
        end += point.bytes;
      }
    }
    if (done < begin) on_text(text.substr(done, begin - done));
    on_token(found->token->id);
    done = end;  // may step back when a token stands in white space that rstrip took: so does the reference
  }
  if (done < text.size()) on_text(text.substr(done));
}

}  // namespace lazytrain::text
