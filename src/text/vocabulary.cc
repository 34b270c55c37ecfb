#include "text/vocabulary.h"

#include "base/error.h"

namespace lazytrain::text {

void Vocabulary::reserve(int64_t count) {
  index_.reserve(static_cast<size_t>(count));
  ids_.reserve(static_cast<size_t>(count));
}

void Vocabulary::add(std::string token, int64_t id, const std::string& where) {
  if (id < 0 || id >= kMaxId) {
    throw InputError("{}: the token \"{}\" has the id {}, expected 0 to {}", where, token, id, kMaxId - 1);
  }
  if (const std::string* other = this->token(id)) {
    throw InputError("{}: the id {} belongs to \"{}\" and to \"{}\"", where, id, *other, token);
  }
  if (const auto other = find(token)) {
    throw InputError("{}: the token \"{}\" has the ids {} and {}", where, token, *other, id);
  }
  if (id >= size()) index_.resize(static_cast<size_t>(id) + 1, -1);
  index_[static_cast<size_t>(id)] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(std::move(token));
  ids_.emplace(tokens_.back(), static_cast<int32_t>(id));
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  const auto it = ids_.find(token);
  return it == ids_.end() ? std::nullopt : std::optional(it->second);
}

const std::string* Vocabulary::token(int64_t id) const {
  if (id < 0 || id >= size()) return nullptr;
  const int32_t index = index_[static_cast<size_t>(id)];
  return index < 0 ? nullptr : &tokens_[static_cast<size_t>(index)];
}

}  // namespace lazytrain::text
