// The tokenizer of a Hugging Face folder: byte-level BPE as tokenizer.json defines it (Qwen, Llama 3, SmolLM2, GPT-2).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lazytrain::text {

struct EncodeOptions {
  bool parse_special = true;        // names of added tokens in the text become these tokens; else they are plain text
  bool add_special_tokens = false;  // what the post-processor puts around a text, such as Llama 3's BOS
};

// Immutable and cheap to copy; every member may be called from several threads at once.
class Tokenizer {
 public:
  // Reads tokenizer.json and, where they exist, tokenizer_config.json, special_tokens_map.json, generation_config.json
  // and config.json. InputError for broken files, UsageError when there is no tokenizer.json and, by name, for what
  // would change ids and is not supported.
  static Tokenizer load(const std::filesystem::path& folder);
  // The same from the texts of the files; the config may be empty. `where` begins the messages.
  static Tokenizer parse(std::string_view tokenizer_json, std::string_view tokenizer_config_json, std::string where);

  // Any bytes up to 2 GiB: a malformed part of UTF-8 is read as U+FFFD. InputError for a longer text, or when a pattern
  // of the file takes too many steps on it.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // Malformed UTF-8 becomes U+FFFD; an id without an entry gives nothing. skip_special leaves out special tokens.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // The bytes of one token, which may begin or end inside a character.
  std::string token_bytes(int32_t id) const;
  bool is_special(int32_t id) const;
  bool has(int32_t id) const;  // whether a token has this id

  int64_t vocab_size() const;                                  // highest id + 1; a model may have more rows
  std::optional<int32_t> id_of(std::string_view token) const;  // by the string in the vocabulary
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> pad_id() const;
  // Ids that end a generation: the tokenizer's EOS and those of generation_config.json (else config.json).
  const std::vector<int32_t>& stop_ids() const;

  // What add_special_tokens puts before and behind a text.
  const std::vector<int32_t>& special_prefix() const;
  const std::vector<int32_t>& special_suffix() const;

  // Names of the config that are set, such as "bos_token" -> "<s>": what chat templates may use.
  const std::map<std::string, std::string>& special_tokens() const;

  // A hash of what determines ids; two files that differ in form only share it.
  const std::string& fingerprint() const;

 private:
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

// Turns ids into text one by one; the pieces together are what decode() gives for all of them.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special = false)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

  std::string feed(int32_t id);  // complete characters only; the beginning of one is held back
  std::string flush();           // what was held back, as U+FFFD

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  std::string held_;
};

}  // namespace lazytrain::text
