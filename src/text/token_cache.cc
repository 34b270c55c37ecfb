#include "text/token_cache.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/arith.h"
#include "base/error.h"
#include "base/hash.h"

namespace lazytrain::text {
namespace {

// The file: header, offsets, tokens, is_target, and the hash of all that (32 characters). Little-endian.
constexpr char kMagic[8] = {'L', 'Z', 'T', 'O', 'K', 'E', 'N', '1'};
constexpr size_t kHashBytes = 32;

struct Header {
  char magic[8];
  char key[kHashBytes];
  int64_t rows;
  int64_t samples;
  int64_t truncated;
  int64_t dropped;
  int64_t tokens;
  int64_t targets;
};

template <typename T>
void append(std::string& out, const std::vector<T>& values) {
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <typename T>
void take(const char*& at, std::vector<T>& values, int64_t count) {
  values.resize(static_cast<size_t>(count));
  std::memcpy(values.data(), at, values.size() * sizeof(T));
  at += values.size() * sizeof(T);
}

std::filesystem::path file_of(const std::filesystem::path& folder, const std::string& key) {
  return folder / (key + ".tokens");
}

// Bytes of a file with these counts, or -1 when no file can have them.
int64_t expected_bytes(const Header& header) {
  int64_t offsets = 0;
  int64_t tokens = 0;
  int64_t total = static_cast<int64_t>(sizeof(Header) + kHashBytes);
  if (header.samples < 0 || header.tokens < 0 || header.samples == std::numeric_limits<int64_t>::max()) return -1;
  const bool fits = checked_mul(header.samples + 1, 8, offsets) && checked_mul(header.tokens, 5, tokens) &&
                    checked_add(total, offsets, total) && checked_add(total, tokens, total);
  return fits ? total : -1;
}

bool consistent(const PreparedData& data) {
  const TokenSet& set = data.samples;
  const bool ordered = std::is_sorted(set.offsets.begin(), set.offsets.end()) && set.offsets.front() == 0 &&
                       set.offsets.back() == static_cast<int64_t>(set.tokens.size());
  return ordered && std::all_of(set.is_target.begin(), set.is_target.end(), [](uint8_t v) { return v <= 1; }) &&
         std::all_of(set.tokens.begin(), set.tokens.end(), [](int32_t id) { return id >= 0; });
}

// Why the bytes are no cache of this key; empty when they are, and then `out` is filled.
std::string read(std::span<const std::byte> bytes, const std::string& key, PreparedData& out) {
  Header header;
  if (bytes.size() < sizeof header + kHashBytes) return "it is too short";
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return "it is no token cache of this version";
  if (std::string_view(header.key, kHashBytes) != key) return "it belongs to other data";
  if (expected_bytes(header) != static_cast<int64_t>(bytes.size())) return "its size does not fit its header";
  const auto body = bytes.first(bytes.size() - kHashBytes);
  const std::string_view stored(reinterpret_cast<const char*>(bytes.data() + body.size()), kHashBytes);
  if (hash_hex(body) != stored) return "its checksum does not match";
  const char* at = reinterpret_cast<const char*>(bytes.data()) + sizeof header;
  take(at, out.samples.offsets, header.samples + 1);
  take(at, out.samples.tokens, header.tokens);
  take(at, out.samples.is_target, header.tokens);
  out.counts = {header.rows, header.samples, header.truncated, header.dropped, header.tokens, header.targets};
  return consistent(out) ? "" : "its contents contradict each other";
}

}  // namespace

std::string cache_key(const Dataset& data, const Encoder& encoder, const ChatTemplate* chat, int64_t seq) {
  const RowSchema& schema = data.schema();
  // Lengths before the parts, so that no two lists of parts give one text.
  std::string parts;
  const auto add = [&parts](std::string_view part) { parts.append(fmt::format("{}:", part.size())).append(part); };
  add(std::string_view(kMagic, sizeof kMagic));
  add(data.content_hash());
  add(std::to_string(static_cast<int>(schema.kind)));
  add(schema.prompt);
  add(schema.response);
  add(encoder.fingerprint);
  add(std::to_string(encoder.eos));
  add(std::to_string(seq));
  add(chat != nullptr ? "chat" : "none");
  if (chat != nullptr) {
    add(chat->source());
    for (const auto& [name, text] : chat->special_tokens()) {
      add(name);
      add(text);
    }
  }
  return hash_hex(parts);
}

void save_tokens(const std::filesystem::path& folder, const std::string& key, const PreparedData& data) {
  const SampleCounts& counts = data.counts;
  Header header = {
      {}, {}, counts.rows, counts.samples, counts.truncated, counts.dropped, counts.tokens, counts.targets};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  key.copy(header.key, kHashBytes);
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  append(bytes, data.samples.offsets);
  append(bytes, data.samples.tokens);
  append(bytes, data.samples.is_target);
  bytes += hash_hex(bytes);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw RunError("{}: the folder cannot be made: {}", folder.string(), error.message());
  write_file(file_of(folder, key), bytes);
}

std::optional<PreparedData> load_tokens(const std::filesystem::path& folder, const std::string& key) {
  const auto path = file_of(folder, key);
  if (!std::filesystem::exists(path)) return std::nullopt;
  std::string reason;
  PreparedData data;
  try {
    const MappedFile file(path);
    reason = read(file.bytes(), key, data);
  } catch (const InputError& e) {
    reason = e.what();
  }
  if (reason.empty()) return data;
  spdlog::warn("token cache {}: {}; the data is tokenised again", path.string(), reason);
  return std::nullopt;
}

PreparedData prepare_data(const DataOptions& options, const Encoder& encoder, const ChatTemplate* chat,
                          ThreadPool& pool) {
  Dataset data(options.file, options.fields);
  if (options.cache_folder.empty()) return prepare_samples(data, encoder, chat, options.seq, pool);
  const std::string key = cache_key(data, encoder, chat, options.seq);
  if (auto cached = load_tokens(options.cache_folder, key)) return *std::move(cached);
  PreparedData prepared = prepare_samples(data, encoder, chat, options.seq, pool);
  try {
    save_tokens(options.cache_folder, key, prepared);
  } catch (const RunError& e) {
    spdlog::warn("the token cache is not kept: {}", e.what());
  }
  return prepared;
}

}  // namespace lazytrain::text
