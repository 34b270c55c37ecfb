// Functions that the kernels need and that CUDA has only approximately, or with other bits than a C++ library: the
// polynomials of the CPU kernels (ops/simd-inl.h), element by element the same bits where the CPU fuses multiply-add.
#pragma once

#include "cuda/kernel.h"

namespace lazytrain::cuda {

// 2^n for whole n in [-126, 127].
__device__ inline float power_of_two(float n) {
  return std::bit_cast<float>(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23);
}
// 2^f, |f| <= 1/2: relative error 2e-9 before rounding; exactly 1 at 0.
__device__ inline float exp2_fraction(float f) {
  float y = 0.00015345812f;
  y = fmaf(y, f, 0.0013399931f);
  y = fmaf(y, f, 0.0096184891f);
  y = fmaf(y, f, 0.055503286f);
  y = fmaf(y, f, 0.24022646f);
  y = fmaf(y, f, 0.69314718f);
  return fmaf(y, f, 1.0f);
}
// e^x for x <= 87; 0 below 2^-126. A NaN stays a NaN: what is not finite must reach the loss.
__device__ inline float exp_of(float x) {
  if (!(x >= -87.0f)) return x != x ? x : 0.0f;
  constexpr float kLog2eHigh = 1.4426950f, kLog2eLow = 1.9259630e-8f;
  const float n = rintf(x * kLog2eHigh);
  const float f = fmaf(x, kLog2eLow, fmaf(x, kLog2eHigh, -n));
  return exp2_fraction(f) * power_of_two(n);
}
// 1 / (1 + e^-x). Beyond |x| = 87 the exponential is held inside the range of fp32.
__device__ inline float sigmoid(float x) {
  if (x != x) return x;
  const float clamped = fabsf(x) > 87.0f ? copysignf(87.0f, x) : x;
  constexpr float kLog2eHigh = -1.4426950f, kLog2eLow = -1.9259630e-8f;
  const float n = rintf(clamped * kLog2eHigh);
  const float f = fmaf(clamped, kLog2eLow, fmaf(clamped, kLog2eHigh, -n));
  return 1.0f / (1.0f + exp2_fraction(f) * power_of_two(n));
}

// cos and sin of fp32 angles, absolute error below 1e-7. The angle is reduced to |r| <= pi/4 in double, so positions
// of millions keep it.
__device__ inline void cos_sin(float angle, float& cosine, float& sine) {
  const double wide = angle;
  const double quarter_turns = rint(wide * 0.63661977236758134308);
  const auto r = static_cast<float>(wide - quarter_turns * 1.57079632679489661923);
  const auto quadrant = static_cast<int32_t>(quarter_turns);
  const float s = r * r;
  float sin_r = fmaf(s, -0.00019501822f, 0.0083320169f);
  sin_r = fmaf(sin_r, s, -0.16666651f);
  sin_r = fmaf(sin_r * s, r, r);
  float cos_r = fmaf(s, 2.4372679e-5f, -0.0013886529f);
  cos_r = fmaf(cos_r, s, 0.041666612f);
  cos_r = fmaf(cos_r, s, -0.5f);
  cos_r = fmaf(cos_r, s, 1.0f);
  const bool odd = (quadrant & 1) != 0;
  sine = odd ? cos_r : sin_r;
  cosine = odd ? sin_r : cos_r;
  if ((quadrant & 2) != 0) sine = -sine;
  if (((quadrant + 1) & 2) != 0) cosine = -cosine;
}

}  // namespace lazytrain::cuda
