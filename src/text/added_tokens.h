// Added tokens: names that are cut out of the text before anything else looks at it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace lazytrain::text {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word character is beside it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and behind it
  bool normalized = false;   // looked for in normalized text
  bool special = false;      // left out when decoding without special tokens
};

// The list "added_tokens" of a tokenizer.json; null is an empty one. InputError when malformed.
std::vector<AddedToken> parse_added_tokens(const Json& list, const std::string& where);

// Finds a set of tokens in text: leftmost, then longest.
class AddedTokenMatcher {
 public:
  // A token, or the text between two.
  using TextSink = std::function<void(std::string_view)>;
  using TokenSink = std::function<void(int32_t id)>;

  // `pattern` is what to look for: the content, or its normal form. Not empty.
  void add(const AddedToken& token, std::string_view pattern);
  void split(std::string_view text, const TextSink& on_text, const TokenSink& on_token) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, int32_t>> next;
    int32_t token = -1;  // index into tokens_
  };
  struct Found {
    size_t end;
    const AddedToken* token;
  };
  std::optional<Found> longest_at(std::string_view text, size_t at) const;
  int32_t child(int32_t node, unsigned char byte) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{1};
  std::array<bool, 256> begins_{};  // by first byte
};

}  // namespace lazytrain::text
