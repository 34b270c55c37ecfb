// Byte-level BPE: the model of a tokenizer.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "text/vocabulary.h"

namespace lazytrain::text {

// (left, right) -> rank and product, open addressing.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;
    int32_t product;
  };
  void reserve(int64_t count);
  void set(int32_t left, int32_t right, Merge merge);  // replaces an earlier one
  const Merge* find(int32_t left, int32_t right) const {
    const uint64_t key = pack(left, right);
    for (size_t i = slot(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i].merge;
      if (slots_[i].key == kFree) return nullptr;
    }
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};  // ids are never negative
  struct Slot {
    uint64_t key = kFree;
    Merge merge{};
  };
  static uint64_t pack(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t slot(uint64_t key) const {
    key ^= key >> 32;
    key *= 0x9E3779B97F4A7C15;
    return static_cast<size_t>(key ^ key >> 29) & mask_;
  }
  std::vector<Slot> slots_ = std::vector<Slot>(16);
  size_t mask_ = 15;
  size_t used_ = 0;
};

class Bpe {
 public:
  struct Scratch {
    struct Candidate {
      uint32_t rank;
      uint32_t position;
      int32_t left, right, product;
    };
    std::vector<int32_t> symbols, next, previous;
    std::vector<uint64_t> ranks;
    std::vector<Candidate> heap;
  };

  // `model` is the value of "model"; its vocabulary is added to `vocabulary`. UsageError for another kind of model or
  // an option that we do not have, InputError for a malformed one.
  static Bpe from_json(const Json& model, const std::string& where, Vocabulary& vocabulary);

  // Appends the ids of one piece (bytes, below 2 GiB). Repeatedly merges the adjacent pair of the least rank, the
  // leftmost of equals: O(n log n).
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;

  std::string describe() const;  // what it does beside the vocabulary, for fingerprints

 private:
  void read_options(const JsonObject& model, const Vocabulary& vocabulary);
  void read_merges(const JsonObject& model, const Vocabulary& vocabulary);
  void fill_symbols(std::string_view piece, std::vector<int32_t>& symbols) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;
  void push(Scratch& scratch, int32_t left, int32_t right) const;

  MergeTable merges_;
  int32_t byte_ids_[256];  // -1: no token
  std::optional<int32_t> unknown_;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  std::unordered_map<std::string, int32_t> whole_;  // by bytes, for ignore_merges
  std::string merges_hash_;
};

}  // namespace lazytrain::text
