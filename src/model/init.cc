#include "model/init.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <string>

#include "base/error.h"
#include "base/hash.h"
#include "base/rng.h"

namespace lazytrain::model {
namespace {

constexpr int64_t kGrain = 4096;
constexpr double kLeastDecay = 0.01, kMostDecay = 16;

uint64_t stream_of(const std::string& name) {
  const std::string hash = hash_hex(name);
  uint64_t stream = 0;
  std::from_chars(hash.data(), hash.data() + 16, stream, 16);
  return stream;
}

// out[i] = scale * rng.normal(first + i); both numbers of a Box-Muller pair are taken from one logarithm.
void fill_normal(const CounterRng& rng, double scale, std::span<float> out, int64_t first) {
  const int64_t end = first + static_cast<int64_t>(out.size());
  for (int64_t pair = first / 2 * 2; pair < end; pair += 2) {
    const auto index = static_cast<uint64_t>(pair);
    const double radius = std::sqrt(-2 * std::log1p(-rng.uniform(index)));
    const double angle = 2 * std::numbers::pi * rng.uniform(index + 1);
    if (pair >= first) out[static_cast<size_t>(pair - first)] = static_cast<float>(scale * (radius * std::cos(angle)));
    if (pair + 1 < end)
      out[static_cast<size_t>(pair + 1 - first)] = static_cast<float>(scale * (radius * std::sin(angle)));
  }
}

}  // namespace

void fill_initial(const graph::Parameter& parameter, double initializer_range, uint64_t seed, std::span<float> out,
                  int64_t first, ThreadPool* pool) {
  const auto count = static_cast<int64_t>(out.size());
  if (first < 0 || count > parameter.elements - first) {
    throw RunError("{}: {} elements from {} on are asked for, it has {}", parameter.name, count, first,
                   parameter.elements);
  }
  const CounterRng rng(seed, stream_of(parameter.name));
  const auto fill = [&](int64_t begin, int64_t end) {
    const auto part = out.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    switch (parameter.init) {
      case graph::Init::kNormal:
        fill_normal(rng, initializer_range, part, first + begin);
        break;
      case graph::Init::kOnes:
        std::ranges::fill(part, 1.0f);
        break;
      case graph::Init::kZeros:
        std::ranges::fill(part, 0.0f);
        break;
      case graph::Init::kLogUniform:
        for (size_t i = 0; i < part.size(); ++i) {
          const double u = rng.uniform(static_cast<uint64_t>(first + begin) + i);
          part[i] = static_cast<float>(std::log(kLeastDecay + (kMostDecay - kLeastDecay) * u));
        }
        break;
    }
  };
  if (pool != nullptr) {
    pool->parallel_for(count, kGrain, fill);
  } else {
    fill(0, count);
  }
}

}  // namespace lazytrain::model
