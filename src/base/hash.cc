#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace lazytrain {
namespace {

std::string to_hex(XXH128_hash_t hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

}  // namespace

std::string hash_hex(std::span<const std::byte> bytes) { return to_hex(XXH3_128bits(bytes.data(), bytes.size())); }

void Hasher::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

Hasher::Hasher() : state_(XXH3_createState()) {
  if (state_ == nullptr || XXH3_128bits_reset(state_.get()) != XXH_OK) throw std::bad_alloc();
}

void Hasher::update(std::span<const std::byte> bytes) { XXH3_128bits_update(state_.get(), bytes.data(), bytes.size()); }

std::string Hasher::hex() const { return to_hex(XXH3_128bits_digest(state_.get())); }

}  // namespace lazytrain
