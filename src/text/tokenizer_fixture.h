// A small tokenizer.json for tests: all bytes, a few merges, two special tokens.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "text/byte_level.h"

namespace lazytrain::text {

struct TokenizerFixture {
  Json file;

  // The pattern of the Split step; ByteLevel follows.
  explicit TokenizerFixture(std::string_view pattern = R"( ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+)") {
    Json vocab = Json::object();
    for (int byte = 0; byte < 256; ++byte) vocab[bytes_to_token(std::string(1, static_cast<char>(byte)))] = byte;
    file["added_tokens"] = Json::array();
    file["normalizer"] = nullptr;
    file["post_processor"] = nullptr;
    file["decoder"] = {{"type", "ByteLevel"}};
    file["model"] = {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}};
    set_split(pattern);
    for (const auto& [left, right] :
         {std::pair("l", "l"), {"h", "e"}, {"he", "ll"}, {"hell", "o"}, {"\xC4\xA0", "hello"}}) {
      merge(left, right);
    }
    add_token("<|end|>", Json::object());
    add_token("<|start|>", Json::object());
  }

  void set_split(std::string_view pattern, const char* behavior = "Isolated", bool invert = false) {
    const Json split = {
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", invert}};
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level()})}};
  }
  static Json byte_level(bool use_regex = false, bool prefix = false) {
    return {{"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"use_regex", use_regex}};
  }
  int64_t next_id() const { return static_cast<int64_t>(file["model"]["vocab"].size() + file["added_tokens"].size()); }
  // Joins two tokens of the vocabulary; the product gets the next id. Call before add_token.
  void merge(const std::string& left, const std::string& right) {
    Json& vocab = file["model"]["vocab"];
    if (!vocab.contains(left + right)) vocab[left + right] = next_id();
    file["model"]["merges"].push_back(Json::array({left, right}));
  }
  void add_token(const std::string& content, const Json& flags) {
    Json token = {{"id", next_id()}, {"content", content}, {"special", true}, {"normalized", false}};
    token.update(flags);
    file["added_tokens"].push_back(token);
  }
  std::string text() const { return file.dump(); }
};

}  // namespace lazytrain::text
