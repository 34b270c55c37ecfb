// The SIMD pass of AdamW on 8-bit moments. The best instruction set of this machine is chosen at run time.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "optim/adamw.h"
#include "optim/moments.h"

namespace lazytrain::optim {

// AdamWStep reduced to what an element needs.
struct AdamW8Constants {
  float gradient_limit;       // on either side of 0, so that squares stay finite
  float gradient_to_m;        // (1 - beta1) gradient_scale
  float gradient_to_root;     // sqrt(1 - beta2) gradient_scale
  float m_decay;              // beta1 / 127^2
  float root_decay;           // sqrt(beta2) / 255^2
  float weight_decay;         // 1 - lr weight_decay
  float root_to_denominator;  // 1 / sqrt(bias_correction2)
  float eps;
  float step_size;  // lr / bias_correction1
};
AdamW8Constants adamw8_constants(const AdamWStep& step);

// n elements from the start of a block on.
void adamw8_kernel(const AdamW8Constants& constants, bf16* hi, int16_t* lo, const Moments8& moments,
                   const bf16* gradient, int64_t n);
void adamw8_kernel(const AdamW8Constants& constants, bf16* hi, int16_t* lo, const Moments8& moments,
                   const float* gradient, int64_t n);

}  // namespace lazytrain::optim
