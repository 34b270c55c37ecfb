// Remembers the ids of short pieces. One thread uses it at a time; its size is fixed.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace lazytrain::text {

class WordCache {
 public:
  // The ids of a piece that was stored and not displaced since; empty when unknown.
  std::span<const int32_t> find(std::string_view piece) {
    if (piece.size() > kMaxBytes) return {};
    const Entry& entry = entries_[slot(piece)];
    if (entry.bytes != piece.size() || std::memcmp(entry.piece.data(), piece.data(), piece.size()) != 0) return {};
    return {entry.ids.data(), entry.count};
  }

  void store(std::string_view piece, std::span<const int32_t> ids) {
    if (piece.empty() || piece.size() > kMaxBytes || ids.empty() || ids.size() > kMaxIds) return;
    Entry& entry = entries_[slot(piece)];
    entry.bytes = static_cast<uint8_t>(piece.size());
    entry.count = static_cast<uint8_t>(ids.size());
    std::memcpy(entry.piece.data(), piece.data(), piece.size());
    std::memcpy(entry.ids.data(), ids.data(), ids.size_bytes());
  }

 private:
  static constexpr size_t kMaxBytes = 30, kMaxIds = 8, kEntries = size_t{1} << 15;
  struct Entry {  // one cache line; 2 MiB in all
    std::array<int32_t, kMaxIds> ids;
    std::array<char, kMaxBytes> piece;
    uint8_t bytes = 0;  // 0: empty
    uint8_t count = 0;
  };
  static_assert(sizeof(Entry) == 64);

  static size_t slot(std::string_view piece) {
    uint64_t hash = piece.size();
    for (; piece.size() >= 8; piece.remove_prefix(8)) hash = mix(hash, piece, 8);
    hash = mix(hash, piece, piece.size());
    return static_cast<size_t>(hash >> 49);
  }
  static uint64_t mix(uint64_t hash, std::string_view piece, size_t bytes) {
    uint64_t word = 0;
    std::memcpy(&word, piece.data(), bytes);
    hash = (hash ^ word) * 0x9E3779B97F4A7C15;
    return hash ^ hash >> 32;
  }

  std::vector<Entry> entries_ = std::vector<Entry>(kEntries);
};

}  // namespace lazytrain::text
