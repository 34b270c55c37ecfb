// The SIMD pass behind adamw_update. The best instruction set of this machine is chosen at run time.
#pragma once

#include <cstdint>

#include "optim/adamw.h"

namespace lazytrain::optim {

// AdamWStep reduced to what an element needs.
struct AdamWConstants {
  float gradient_scale;
  float decay;
  float lerp_weight;      // of (g - m), added to m or to g
  bool lerp_from_moment;  // m + lerp_weight * (g - m), else g + lerp_weight * (g - m)
  float beta2;
  float one_minus_beta2;
  float root_bias_correction2;
  float eps;
  float minus_step_size;
};
AdamWConstants adamw_constants(const AdamWStep& step);

void adamw_kernel(const AdamWConstants& constants, const AdamWArrays& arrays, const bf16* gradient, int64_t n);
void adamw_kernel(const AdamWConstants& constants, const AdamWArrays& arrays, const float* gradient, int64_t n);

}  // namespace lazytrain::optim
