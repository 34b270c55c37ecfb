// Counter-based random numbers: the value at (seed, stream, index) is a pure function, so any position of any
// stream is reached in O(1) and nothing depends on the order of calls (resume, threads).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace lazytrain {

// SplitMix64's finalizer (Steele, Lea, Flood 2014): a bijection of 64 bits.
constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

class CounterRng {
 public:
  constexpr CounterRng(uint64_t seed, uint64_t stream) : key_(mix64(mix64(seed + 0x9e3779b97f4a7c15ull) ^ stream)) {}

  constexpr uint64_t bits(uint64_t index) const { return mix64(key_ + (index + 1) * 0x9e3779b97f4a7c15ull); }
  constexpr double uniform(uint64_t index) const {
    return static_cast<double>(bits(index) >> 11) * 0x1.0p-53;
  }  // [0, 1)
  // Box-Muller on the pair of counters that holds `index`.
  double normal(uint64_t index) const {
    const uint64_t pair = index / 2 * 2;
    const double radius = std::sqrt(-2 * std::log1p(-uniform(pair)));
    const double angle = 2 * std::numbers::pi * uniform(pair + 1);
    return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
  }
  // [0, bound) by multiply-shift; the bias is below bound / 2^64.
  constexpr uint64_t below(uint64_t index, uint64_t bound) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>((static_cast<Wide>(bits(index)) * bound) >> 64);
  }

 private:
  uint64_t key_;
};

}  // namespace lazytrain
