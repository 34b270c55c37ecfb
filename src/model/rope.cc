#include "model/rope.h"

#include <cmath>
#include <numbers>

namespace lazytrain::model {
namespace {

float scaled_llama3(const RopeConfig& rope, float frequency) {
  const auto positions = static_cast<float>(rope.original_positions);
  const auto low = static_cast<float>(rope.low_frequency);
  const auto high = static_cast<float>(rope.high_frequency);
  const auto factor = static_cast<float>(rope.factor);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
  if (wavelength > positions / low) return frequency / factor;
  if (wavelength < positions / high) return frequency;
  const float smooth = (positions / wavelength - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

std::vector<float> inverse_frequencies(const RopeConfig& rope, int64_t head_dim) {
  std::vector<float> frequencies;
  frequencies.reserve(static_cast<size_t>(head_dim / 2));
  for (int64_t j = 0; j < head_dim / 2; ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(head_dim);
    const auto power = static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent)));
    const float frequency = 1.0f / power;
    frequencies.push_back(rope.type == RopeType::kLlama3 ? scaled_llama3(rope, frequency) : frequency);
  }
  return frequencies;
}

}  // namespace lazytrain::model
