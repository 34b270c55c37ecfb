// Rotary position embedding: which frequencies a model turns its heads with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lazytrain::model {

enum class RopeType : uint8_t { kDefault, kLlama3, kYarn };

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000;
  // Of kLlama3 only: wavelengths beyond original_positions / low_frequency are stretched by `factor`, those under
  // original_positions / high_frequency stay, the ones between are blended.
  double factor = 1;
  double low_frequency = 1;
  double high_frequency = 4;
  int64_t original_positions = 0;
  // Of kYarn, with factor and original_positions: dimensions that turn more than beta_fast times over
  // original_positions keep their frequency, those that turn less than beta_slow times are stretched, the ones between
  // blended; `truncate`: between whole dimensions.
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;
  double partial = 1;  // the part of a head that is turned, from its first dimension

  // Dimensions of a head that are turned.
  int64_t rotated(int64_t head_dim) const { return static_cast<int64_t>(static_cast<double>(head_dim) * partial); }
  // What cosines and sines are multiplied by: 0.1 ln(factor) + 1 for kYarn.
  double attention_scaling() const;

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// [r / 2] inverse frequencies w_j = theta^(-2j / r), r the turned dimensions of a head (models: RoPE), scaled as
// `rope.type` says (Llama 3.1; YaRN, arXiv 2309.00071). Computed in the fp32 steps of the reference implementation, so
// that angles of far positions agree with it.
std::vector<float> inverse_frequencies(const RopeConfig& rope, int64_t head_dim);

}  // namespace lazytrain::model
