// Constants of the 8-bit map of moments.h, for the update and the conversions.
#pragma once

namespace lazytrain::optim {

inline constexpr float kMostM = 16129.0f;  // 127^2
inline constexpr float kMostV = 65025.0f;  // 255^2

// Below it the reciprocal would overflow; such an m moves a weight by less than lr 1e-30 / eps.
inline constexpr float kSmallestScaleOfM = 0x1p-100f;

// A code is the root of its element times these.
struct BlockFactors {
  float m;
  float root;

  constexpr BlockFactors(float m_scale, float root_scale)
      : m(m_scale > 0.0f ? kMostM / m_scale : 0.0f), root(root_scale > 0.0f ? kMostV / root_scale : 0.0f) {}
};

}  // namespace lazytrain::optim
