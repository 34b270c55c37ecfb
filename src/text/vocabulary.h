// Token strings and their ids, both ways.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lazytrain::text {

class Vocabulary {
 public:
  // Ids from here on are refused: a file of a few bytes must not make us allocate for a billion rows.
  static constexpr int64_t kMaxId = int64_t{1} << 22;

  void reserve(int64_t count);
  // `where` is for messages: InputError when the id is out of range, or taken by another token, or the token by an id.
  void add(std::string token, int64_t id, const std::string& where);

  std::optional<int32_t> find(std::string_view token) const;
  const std::string* token(int64_t id) const;  // null when no token has the id; valid until add()
  int64_t count() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t size() const { return static_cast<int64_t>(index_.size()); }  // highest id + 1

 private:
  // Open addressing by the token's hash; a quarter of the time of loading is spent here.
  struct Slot {
    uint32_t hash = 0;
    int32_t index = -1;  // position in tokens_ and ids_
  };
  static uint32_t hash_of(std::string_view token);
  size_t find_slot(std::string_view token, uint32_t hash) const;  // the token's, or the free one where it belongs
  void resize_slots(int64_t count);

  std::vector<std::string> tokens_;
  std::vector<int32_t> ids_;    // of each of tokens_
  std::vector<int32_t> index_;  // by id: position in tokens_, or -1
  std::vector<Slot> slots_ = std::vector<Slot>(16);
};

}  // namespace lazytrain::text
