// Token strings and their ids, both ways.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
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
  const std::string* token(int64_t id) const;  // null when no token has the id
  int64_t count() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t size() const { return static_cast<int64_t>(index_.size()); }  // highest id + 1

 private:
  std::deque<std::string> tokens_;  // addresses stay, the map's keys are views of them
  std::vector<int32_t> index_;      // by id: position in tokens_, or -1
  std::unordered_map<std::string_view, int32_t> ids_;
};

}  // namespace lazytrain::text
