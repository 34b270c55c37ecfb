#include "text/tokenizer.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_config.h"
#include "text/utf8.h"
#include "text/vocabulary.h"
#include "text/word_cache.h"

namespace lazytrain::text {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 28;
constexpr size_t kMaxTextBytes = (size_t{1} << 31) - 1;

// What one call of encode() needs; kept for the next one.
struct Workspace {
  Regex::Workspace regex;
  Bpe::Scratch bpe;
  WordCache cache;
  std::string normalized;
};

// Lends workspaces, at most one a thread that encodes at the same time.
class WorkspacePool {
 public:
  std::unique_ptr<Workspace> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto workspace = std::move(free_.back());
        free_.pop_back();
        return workspace;
      }
    }
    return std::make_unique<Workspace>();
  }
  void give(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

const Json& value_of(const Json& object, const char* key) {
  static const Json kNull;
  const auto it = object.find(key);
  return it == object.end() ? kNull : *it;
}

// Only the byte-level decoder gives text back; Fuse joins what is one string already.
bool has_byte_level_decoder(const Json& config, const std::string& where, int depth) {
  if (config.is_null()) return false;
  const JsonObject object(config, where);
  const std::string type = object.string("type");
  if (type == "ByteLevel") return true;
  if (type == "Fuse") return false;
  if (type != "Sequence" || depth > 16) {
    throw UsageError(
        "{}: the decoder \"{}\" is not supported; supported is ByteLevel, alone or in a Sequence with Fuse", where,
        shown(type));
  }
  const Json& parts = value_of(config, "decoders");
  if (!parts.is_array()) throw InputError("{}: \"decoders\" of a Sequence must be a list", where);
  int count = 0;
  for (const Json& part : parts) count += has_byte_level_decoder(part, where, depth + 1) ? 1 : 0;
  return count == 1;
}

}  // namespace

struct Tokenizer::State {
  Vocabulary vocabulary;
  Bpe bpe;
  Normalizer normalizer;
  Pretokenizer pretokenizer;
  PostProcessor post_processor;
  AddedTokenMatcher raw_added, normalized_added;
  std::vector<bool> special;                      // by id
  std::map<int32_t, std::string> normal_content;  // of added tokens whose normal form differs: what decoding gives
  std::map<std::string, std::string> special_tokens;
  std::optional<int32_t> eos, bos, pad;
  std::vector<int32_t> stop;
  std::string fingerprint;
  mutable WorkspacePool pool;

  static std::shared_ptr<State> make(const Json& json, const TokenizerConfig& config, const std::string& where);
  void add_tokens(const std::vector<AddedToken>& tokens, const std::string& where);
  void apply(const TokenizerConfig& config, const std::string& where);
  std::string hash(const std::vector<AddedToken>& added) const;

  void append_bytes(int32_t id, std::string& out) const;
  void encode_part(std::string_view text, bool parse_added, Workspace& workspace, std::vector<int32_t>& ids) const;
  void encode_plain(std::string_view text, Workspace& workspace, std::vector<int32_t>& ids) const;
};

std::shared_ptr<Tokenizer::State> Tokenizer::State::make(const Json& json, const TokenizerConfig& config,
                                                         const std::string& where) {
  const JsonObject object(json, where);
  const auto state = std::make_shared<State>();
  state->normalizer = Normalizer::from_json(value_of(json, "normalizer"), where);
  state->pretokenizer = Pretokenizer::from_json(value_of(json, "pre_tokenizer"), where);
  state->post_processor = PostProcessor::from_json(value_of(json, "post_processor"), where);
  if (!has_byte_level_decoder(value_of(json, "decoder"), where + ": decoder", 0)) {
    throw UsageError("{}: the decoder has no ByteLevel step; only byte-level BPE is supported", where);
  }
  // "truncation" and "padding" are left alone: they are settings of a call, which transformers turns off by default.
  state->bpe = Bpe::from_json(object.object("model").json(), where, state->vocabulary);
  const auto added = parse_added_tokens(value_of(json, "added_tokens"), where + ": added_tokens");
  state->add_tokens(added, where + ": added_tokens");
  state->apply(config, where);
  state->fingerprint = state->hash(added);
  return state;
}

void Tokenizer::State::add_tokens(const std::vector<AddedToken>& tokens, const std::string& where) {
  std::string buffer;
  std::vector<bool> seen;
  for (const AddedToken& token : tokens) {
    const auto id = static_cast<size_t>(token.id);
    // A token of the vocabulary may be listed here too, under its id.
    if (vocabulary.find(token.content) != token.id) vocabulary.add(token.content, token.id, where);
    if (seen.size() <= id) seen.resize(id + 1);
    if (seen[id]) throw InputError("{}: \"{}\" with the id {} stands twice", where, shown(token.content), token.id);
    seen[id] = true;
    if (!token.normalized) {
      raw_added.add(token, token.content);
    } else {
      const std::string_view normal = normalizer.apply(token.content, buffer);
      normalized_added.add(token, normal);
      if (normal != token.content) normal_content.emplace(token.id, normal);
    }
    if (token.special) {
      special.resize(std::max(special.size(), id + 1));
      special[id] = true;
    }
  }
}

void Tokenizer::State::apply(const TokenizerConfig& config, const std::string& where) {
  special_tokens = config.special_tokens;
  const auto id_of = [&](const char* name) -> std::optional<int32_t> {
    const auto it = special_tokens.find(name);
    if (it == special_tokens.end()) return std::nullopt;
    const auto id = vocabulary.find(it->second);
    if (!id)
      throw InputError("{}: the {} \"{}\" of the tokenizer's config is not a token of it", where, name,
                       shown(it->second));
    return id;
  };
  eos = id_of("eos_token");
  bos = id_of("bos_token");
  pad = id_of("pad_token");
  if (eos) stop.push_back(*eos);
  for (const int32_t id : config.generation_eos) {
    if (std::find(stop.begin(), stop.end(), id) == stop.end()) stop.push_back(id);
  }
  for (const auto& [id, content] : config.added_tokens) {
    const auto known = vocabulary.find(content);
    if (known != id) {
      throw InputError("{}: added_tokens_decoder of the tokenizer's config gives \"{}\" the id {}, tokenizer.json {}",
                       where, shown(content), id, known ? fmt::format("the id {}", *known) : "does not know it");
    }
  }
  for (const auto* ids : {&post_processor.prefix, &post_processor.suffix}) {
    for (const int32_t id : *ids) {
      if (vocabulary.token(id) == nullptr) throw InputError("{}: post_processor: no token has the id {}", where, id);
    }
  }
}

std::string Tokenizer::State::hash(const std::vector<AddedToken>& added) const {
  std::string all = normalizer.describe() + pretokenizer.describe() + bpe.describe();
  for (int64_t id = 0; id < vocabulary.size(); ++id) {
    if (const std::string* token = vocabulary.token(id))
      fmt::format_to(std::back_inserter(all), "{} {}:{};", id, token->size(), *token);
  }
  for (const AddedToken& token : added) {
    all += fmt::format("added {} {} {} {} {} {};", token.id, token.single_word, token.lstrip, token.rstrip,
                       token.normalized, token.special);
  }
  for (const auto* ids : {&post_processor.prefix, &post_processor.suffix}) {
    for (const int32_t id : *ids) all += fmt::format("{},", id);
    all += ";";
  }
  return hash_hex(all);
}

// A token in the byte-level alphabet gives its bytes, any other (an added one) its own text.
void Tokenizer::State::append_bytes(int32_t id, std::string& out) const {
  const std::string* token = vocabulary.token(id);
  if (token == nullptr) return;
  if (const auto it = normal_content.find(id); it != normal_content.end()) token = &it->second;
  const auto bytes = token_to_bytes(*token);
  out += bytes ? *bytes : *token;
}

void Tokenizer::State::encode_plain(std::string_view text, Workspace& workspace, std::vector<int32_t>& ids) const {
  pretokenizer.split(text, workspace.regex, [&](std::string_view piece) {
    if (const auto known = workspace.cache.find(piece); !known.empty()) {
      ids.insert(ids.end(), known.begin(), known.end());
      return;
    }
    const size_t before = ids.size();
    bpe.encode(piece, workspace.bpe, ids);
    workspace.cache.store(piece, std::span(ids).subspan(before));
  });
}

// Text between raw added tokens: normalized by itself, so that nothing combines across such a token.
void Tokenizer::State::encode_part(std::string_view text, bool parse_added, Workspace& workspace,
                                   std::vector<int32_t>& ids) const {
  const std::string_view normal = normalizer.apply(text, workspace.normalized);
  const auto on_text = [&](std::string_view part) { encode_plain(part, workspace, ids); };
  if (!parse_added) return on_text(normal);
  normalized_added.split(normal, on_text, [&](int32_t id) { ids.push_back(id); });
}

Tokenizer Tokenizer::load(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer.json";
  if (!std::filesystem::exists(path)) {
    throw UsageError(
        "{}: no such file; a tokenizer folder needs tokenizer.json (vocab.json and merges.txt alone are not "
        "read: load and save the tokenizer with transformers to have it written)",
        path.string());
  }
  return Tokenizer(State::make(read_json(path, kMaxFileBytes), TokenizerConfig::load(folder), path.string()));
}

Tokenizer Tokenizer::parse(std::string_view tokenizer_json, std::string_view tokenizer_config_json, std::string where) {
  return Tokenizer(State::make(parse_json(tokenizer_json, where),
                               TokenizerConfig::parse(tokenizer_config_json, where + ": tokenizer_config"), where));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    throw InputError("a text of {} bytes is too long to tokenize at once; split it into parts below 2 GiB",
                     text.size());
  }
  std::string repaired;
  if (!is_valid_utf8(text)) text = repaired = to_valid_utf8(text);
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 16);
  if (options.add_special_tokens) ids = state_->post_processor.prefix;
  auto workspace = state_->pool.take();
  const auto on_text = [&](std::string_view part) {
    state_->encode_part(part, options.parse_special, *workspace, ids);
  };
  if (options.parse_special) {
    state_->raw_added.split(text, on_text, [&](int32_t id) { ids.push_back(id); });
  } else {
    on_text(text);
  }
  state_->pool.give(std::move(workspace));
  if (options.add_special_tokens) {
    ids.insert(ids.end(), state_->post_processor.suffix.begin(), state_->post_processor.suffix.end());
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (!skip_special || !is_special(id)) state_->append_bytes(id, bytes);
  }
  return is_valid_utf8(bytes) ? bytes : to_valid_utf8(bytes);
}

std::string Tokenizer::token_bytes(int32_t id) const {
  std::string bytes;
  state_->append_bytes(id, bytes);
  return bytes;
}

bool Tokenizer::has(int32_t id) const { return state_->vocabulary.token(id) != nullptr; }

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < state_->special.size() && state_->special[static_cast<size_t>(id)];
}

int64_t Tokenizer::vocab_size() const { return state_->vocabulary.size(); }
std::optional<int32_t> Tokenizer::id_of(std::string_view token) const { return state_->vocabulary.find(token); }
std::optional<int32_t> Tokenizer::eos_id() const { return state_->eos; }
std::optional<int32_t> Tokenizer::bos_id() const { return state_->bos; }
std::optional<int32_t> Tokenizer::pad_id() const { return state_->pad; }
const std::vector<int32_t>& Tokenizer::stop_ids() const { return state_->stop; }
const std::vector<int32_t>& Tokenizer::special_prefix() const { return state_->post_processor.prefix; }
const std::vector<int32_t>& Tokenizer::special_suffix() const { return state_->post_processor.suffix; }
const std::map<std::string, std::string>& Tokenizer::special_tokens() const { return state_->special_tokens; }
const std::string& Tokenizer::fingerprint() const { return state_->fingerprint; }

std::string StreamDecoder::feed(int32_t id) {
  if (skip_special_ && tokenizer_.is_special(id)) return {};
  std::string bytes = std::exchange(held_, {}) + tokenizer_.token_bytes(id);
  held_ = bytes.substr(bytes.size() - incomplete_tail(bytes));
  bytes.resize(bytes.size() - held_.size());
  return to_valid_utf8(bytes);
}

std::string StreamDecoder::flush() { return to_valid_utf8(std::exchange(held_, {})); }

}  // namespace lazytrain::text
