// The SIMD sums behind grad_norm.h, one block of at most kSumBlock values at a time.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace lazytrain::optim {

double sum_block(const bf16* values, int64_t n);
double sum_block(const float* values, int64_t n);
double round_and_sum_block(const float* in, bf16* out, int64_t n);

}  // namespace lazytrain::optim
