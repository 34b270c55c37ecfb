// AdamW on split fp32 master weights: one fused pass over the gradient, the weights and both moments, which are fp32 or
// 8-bit.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/thread_pool.h"
#include "optim/moments.h"

namespace lazytrain::optim {

// The optimizer.* keys that stay the same for a run.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
};

// Throws UsageError that names the key when a value is outside its range: betas in [0, 1), eps > 0 as a float (a weight
// that never got a gradient would be 0 / 0 otherwise), weight_decay >= 0.
void check(const AdamWOptions& options);

// Everything one update needs besides the arrays. All values are taken to float once, after the arithmetic in double.
struct AdamWStep {
  double lr = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;      // of these elements: 0 for those that do not decay
  double gradient_scale = 1.0;    // the clip factor
  double bias_correction1 = 1.0;  // 1 - beta1^t
  double bias_correction2 = 1.0;  // 1 - beta2^t
};

// The step for update number `update` (from 1; skipped steps do not count). `decays` says whether weight_decay applies.
AdamWStep adamw_step(const AdamWOptions& options, double lr, int64_t update, double gradient_scale, bool decays);

// The arrays of n parameters, updated in place. They need no alignment beyond their type's and must not overlap.
struct AdamWArrays {
  bf16* hi;     // nearest bf16 of the weight: what the device computes with
  int16_t* lo;  // remainder of the fp32 bits (base/dtype.h, split_master)
  float* m;     // first moment
  float* v;     // second moment
};

// For each of n elements, in the order of torch.optim.AdamW's single-tensor path:
//   g = gradient * gradient_scale;  p *= 1 - lr * weight_decay;  m = lerp(m, g, 1 - beta1);
//   v = v * beta2 + (1 - beta2) * g * g;  p -= lr / bias_correction1 * m / (sqrt(v) / sqrt(bias_correction2) + eps).
// Only correctly rounded +, -, *, / and sqrt in float, no fused multiply-add: the same bits from every instruction set
// and, being elementwise, from any number of threads. `pool` may be null (the caller's thread does everything).
void adamw_update(const AdamWStep& step, const AdamWArrays& arrays, const bf16* gradient, int64_t n, ThreadPool* pool);
void adamw_update(const AdamWStep& step, const AdamWArrays& arrays, const float* gradient, int64_t n, ThreadPool* pool);

// The same on moments of either kind. 8-bit moments are read from their codes and scales and leave as such, block by
// block, with nothing else as large as a block in between; the update itself uses the new moments before they are
// rounded to codes:
//   g = clamp(gradient, 2^63 / gradient_scale)  (fp32 moments become infinite beyond squares of fp32, these stay
//   finite) m = beta1 m + (1 - beta1) gradient_scale g;  v = (sqrt(beta2 v))^2 + (sqrt(1 - beta2) gradient_scale g)^2
//   p = p (1 - lr weight_decay) - lr / bias_correction1 * m / (sqrt(v) / sqrt(bias_correction2) + eps)
// Codes of m are the nearest, those of v are rounded up or down with the last bits of sqrt(v) as the random number: a v
// whose change of a step is smaller than half a code would never move otherwise. moments.h has the bounds of the error.
// The same bits from every instruction set (optim/moments8-inl.h), any number of threads, and any cut into pieces at
// starts of blocks. The gradient must be finite.
void adamw_update(const AdamWStep& step, bf16* hi, int16_t* lo, const Moments& moments, const bf16* gradient, int64_t n,
                  ThreadPool* pool);
void adamw_update(const AdamWStep& step, bf16* hi, int16_t* lo, const Moments& moments, const float* gradient,
                  int64_t n, ThreadPool* pool);

}  // namespace lazytrain::optim
