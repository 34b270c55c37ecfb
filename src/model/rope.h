// Rotary position embedding: which frequencies a model turns its heads with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lazytrain::model {

enum class RopeType : uint8_t { kDefault, kLlama3 };

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000;
  // Of kLlama3 only: wavelengths beyond original_positions / low_frequency are stretched by `factor`, those under
  // original_positions / high_frequency stay, the ones between are blended.
  double factor = 1;
  double low_frequency = 1;
  double high_frequency = 4;
  int64_t original_positions = 0;

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// [head_dim / 2] inverse frequencies w_j = theta^(-2j / head_dim) (models: RoPE), scaled as `rope.type` says
// (Llama 3.1). Computed in the fp32 steps of the reference implementation, so that angles of far positions agree with
// it.
std::vector<float> inverse_frequencies(const RopeConfig& rope, int64_t head_dim);

}  // namespace lazytrain::model
