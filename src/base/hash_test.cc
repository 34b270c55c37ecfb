#include "base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <vector>

#include "base/rng.h"

namespace lazytrain {
namespace {

std::vector<std::byte> random_bytes(size_t count, uint64_t seed) {
  const CounterRng rng(seed, 0);
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(rng.below(i, 256));
  return bytes;
}

// XXH3 has other code for up to 16, 128 and 240 bytes, and for more, where it works in blocks of 1024.
TEST(Hasher, IsTheHashOfTheWholeHoweverItIsCut) {
  std::set<std::string> met;
  for (const size_t count : std::initializer_list<size_t>{0, 1, 16, 17, 128, 129, 240, 241, 1024, 1025, 100000}) {
    const std::vector<std::byte> bytes = random_bytes(count, count);
    const std::string whole = hash_hex(std::span<const std::byte>(bytes));
    EXPECT_TRUE(met.insert(whole).second) << count;
    for (const size_t cut : std::initializer_list<size_t>{1, 7, 64, 1000, 1024, 65536}) {
      Hasher hasher;
      for (size_t begin = 0; begin < count; begin += cut) {
        hasher.update(std::span(bytes).subspan(begin, std::min(cut, count - begin)));
      }
      EXPECT_EQ(hasher.hex(), whole) << count << " bytes cut by " << cut;
    }
  }
}

TEST(Hasher, GivesTheHashSoFarAndGoesOn) {
  Hasher hasher;
  EXPECT_EQ(hasher.hex(), hash_hex(""));
  hasher.update(std::as_bytes(std::span(std::string_view("ab"))));
  EXPECT_EQ(hasher.hex(), hash_hex("ab"));
  hasher.update(std::as_bytes(std::span(std::string_view("c"))));
  EXPECT_EQ(hasher.hex(), hash_hex("abc"));
}

}  // namespace
}  // namespace lazytrain
