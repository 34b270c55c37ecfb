#include "text/vocabulary.h"

#include <bit>
#include <functional>

#include "base/error.h"
#include "base/json.h"

namespace lazytrain::text {

uint32_t Vocabulary::hash_of(std::string_view token) {
  return static_cast<uint32_t>(std::hash<std::string_view>()(token) >> 16);
}

size_t Vocabulary::find_slot(std::string_view token, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.index < 0 || (slot.hash == hash && tokens_[static_cast<size_t>(slot.index)] == token)) return i;
  }
}

void Vocabulary::resize_slots(int64_t count) {
  const size_t wanted = std::bit_ceil(2 * static_cast<size_t>(count));
  if (wanted <= slots_.size()) return;
  slots_.assign(wanted, {});
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const uint32_t hash = hash_of(tokens_[i]);
    slots_[find_slot(tokens_[i], hash)] = {hash, static_cast<int32_t>(i)};
  }
}

void Vocabulary::reserve(int64_t count) {
  tokens_.reserve(static_cast<size_t>(count));
  ids_.reserve(static_cast<size_t>(count));
  index_.reserve(static_cast<size_t>(count));
  resize_slots(count);
}

void Vocabulary::add(std::string token, int64_t id, const std::string& where) {
  if (id < 0 || id >= kMaxId) {
    throw InputError("{}: the token \"{}\" has the id {}, expected 0 to {}", where, shown(token), id, kMaxId - 1);
  }
  if (const std::string* other = this->token(id)) {
    throw InputError("{}: the id {} belongs to \"{}\" and to \"{}\"", where, id, shown(*other), shown(token));
  }
  resize_slots(count() + 1);
  const uint32_t hash = hash_of(token);
  Slot& slot = slots_[find_slot(token, hash)];
  if (slot.index >= 0) {
    throw InputError("{}: the token \"{}\" has the ids {} and {}", where, shown(token),
                     ids_[static_cast<size_t>(slot.index)], id);
  }
  if (id >= size()) index_.resize(static_cast<size_t>(id) + 1, -1);
  index_[static_cast<size_t>(id)] = static_cast<int32_t>(tokens_.size());
  slot = {hash, static_cast<int32_t>(tokens_.size())};
  tokens_.push_back(std::move(token));
  ids_.push_back(static_cast<int32_t>(id));
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  const Slot& slot = slots_[find_slot(token, hash_of(token))];
  return slot.index < 0 ? std::nullopt : std::optional(ids_[static_cast<size_t>(slot.index)]);
}

const std::string* Vocabulary::token(int64_t id) const {
  if (id < 0 || id >= size()) return nullptr;
  const int32_t index = index_[static_cast<size_t>(id)];
  return index < 0 ? nullptr : &tokens_[static_cast<size_t>(index)];
}

}  // namespace lazytrain::text
