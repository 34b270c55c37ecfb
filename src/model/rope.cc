#include "model/rope.h"

#include <algorithm>
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

// The blend of YaRN: 1 where a dimension keeps its frequency, 0 where it is stretched.
std::vector<float> yarn_kept(const RopeConfig& rope, int64_t dims) {
  const auto width = static_cast<double>(dims);
  // The dimension that turns `turns` times over the original positions.
  const auto dimension = [&](double turns) {
    const double positions = static_cast<double>(rope.original_positions);
    return width * std::log(positions / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
  };
  double low = dimension(rope.beta_fast), high = dimension(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, width - 1);
  if (low == high) high += 0.001;
  std::vector<float> kept;
  for (int64_t j = 0; j < dims / 2; ++j) {
    const auto ramp = static_cast<float>((static_cast<double>(j) - low) / (high - low));
    kept.push_back(1 - std::clamp(ramp, 0.0f, 1.0f));
  }
  return kept;
}

}  // namespace

double RopeConfig::attention_scaling() const {
  return type == RopeType::kYarn && factor > 1 ? 0.1 * std::log(factor) + 1 : 1;
}

std::vector<float> inverse_frequencies(const RopeConfig& rope, int64_t head_dim) {
  const int64_t dims = rope.rotated(head_dim);
  const std::vector<float> kept = rope.type == RopeType::kYarn ? yarn_kept(rope, dims) : std::vector<float>();
  std::vector<float> frequencies;
  frequencies.reserve(static_cast<size_t>(dims / 2));
  for (int64_t j = 0; j < dims / 2; ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(dims);
    const auto power = static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent)));
    float frequency = 1.0f / power;
    if (rope.type == RopeType::kLlama3) frequency = scaled_llama3(rope, frequency);
    if (rope.type == RopeType::kYarn) {
      const float part = kept[static_cast<size_t>(j)];
      frequency = (1 - part) / (static_cast<float>(rope.factor) * power) + part * frequency;
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

}  // namespace lazytrain::model
