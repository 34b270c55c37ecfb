// What stands beside tokenizer.json: named special tokens, and ids that end a generation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace lazytrain::text {

struct TokenizerConfig {
  std::map<std::string, std::string> special_tokens;          // "bos_token" -> "<s>"; those that are set
  std::vector<std::pair<int64_t, std::string>> added_tokens;  // "added_tokens_decoder"
  std::vector<int32_t> generation_eos;                        // eos_token_id of generation_config.json or config.json

  // The text of a tokenizer_config.json; empty when there is none. InputError when malformed.
  static TokenizerConfig parse(std::string_view json, const std::string& where);
  // tokenizer_config.json, special_tokens_map.json for what that does not mention, generation_config.json, config.json;
  // each may be missing.
  static TokenizerConfig load(const std::filesystem::path& folder);
};

}  // namespace lazytrain::text
