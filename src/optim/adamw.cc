#include "optim/adamw.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <variant>

#include "base/arith.h"
#include "base/error.h"
#include "optim/adamw8_kernel.h"
#include "optim/adamw_kernel.h"
#include "optim/moments8.h"

namespace lazytrain::optim {
namespace {

// Ranges of the threads start on cache lines of every array when the arrays do; small tensors stay on one thread.
constexpr int64_t kGrain = 16384;

AdamWArrays advance(const AdamWArrays& a, int64_t by) { return {a.hi + by, a.lo + by, a.m + by, a.v + by}; }

template <typename Gradient>
void update(const AdamWStep& step, const AdamWArrays& arrays, const Gradient* gradient, int64_t n, ThreadPool* pool) {
  const AdamWConstants constants = adamw_constants(step);
  if (pool == nullptr || n <= kGrain) {
    adamw_kernel(constants, arrays, gradient, n);
    return;
  }
  pool->parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    adamw_kernel(constants, advance(arrays, begin), gradient + begin, end - begin);
  });
}

template <typename Gradient>
void update(const AdamWStep& step, bf16* hi, int16_t* lo, const Moments& moments, const Gradient* gradient, int64_t n,
            ThreadPool* pool) {
  if (const auto* plain = std::get_if<Moments32>(&moments)) {
    update(step, AdamWArrays{hi, lo, plain->m, plain->v}, gradient, n, pool);
    return;
  }
  const Moments8& codes = std::get<Moments8>(moments);
  const AdamW8Constants constants = adamw8_constants(step);
  const auto range = [&](int64_t begin, int64_t end) {
    adamw8_kernel(constants, hi + begin, lo + begin, advance(codes, begin / codes.block), gradient + begin,
                  end - begin);
  };
  if (pool == nullptr || n <= kGrain) {
    range(0, n);
  } else {
    pool->parallel_for(n, align_up(kGrain, codes.block), range);
  }
}

void check_beta(const char* name, double beta) {
  if (!(beta >= 0.0 && beta < 1.0)) {
    throw UsageError("optimizer.betas: {} is {}; expected a number in [0, 1), e.g. [0.9, 0.999]", name, beta);
  }
}

}  // namespace

AdamWConstants adamw_constants(const AdamWStep& step) {
  const double weight = 1.0 - step.beta1;
  // torch's lerp takes the end that is nearer as the base, so that weight 1 gives the gradient exactly.
  const bool from_moment = std::abs(static_cast<float>(weight)) < 0.5f;
  return {.gradient_scale = static_cast<float>(step.gradient_scale),
          .decay = static_cast<float>(1.0 - step.lr * step.weight_decay),
          .lerp_weight = from_moment ? static_cast<float>(weight) : static_cast<float>(weight) - 1.0f,
          .lerp_from_moment = from_moment,
          .beta2 = static_cast<float>(step.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - step.beta2),
          .root_bias_correction2 = static_cast<float>(std::sqrt(step.bias_correction2)),
          .eps = static_cast<float>(step.eps),
          .minus_step_size = static_cast<float>(-(step.lr / step.bias_correction1))};
}

AdamW8Constants adamw8_constants(const AdamWStep& step) {
  constexpr double kLargestGradient = 0x1p63;
  constexpr double kLargestFloat = std::numeric_limits<float>::max();
  return {.gradient_limit = static_cast<float>(std::min(kLargestGradient / step.gradient_scale, kLargestFloat)),
          .gradient_to_m = static_cast<float>((1.0 - step.beta1) * step.gradient_scale),
          .gradient_to_root = static_cast<float>(std::sqrt(1.0 - step.beta2) * step.gradient_scale),
          .m_decay = static_cast<float>(step.beta1 / kMostM),
          .root_decay = static_cast<float>(std::sqrt(step.beta2) / kMostV),
          .weight_decay = static_cast<float>(1.0 - step.lr * step.weight_decay),
          .root_to_denominator = static_cast<float>(1.0 / std::sqrt(step.bias_correction2)),
          .eps = static_cast<float>(step.eps),
          .step_size = static_cast<float>(step.lr / step.bias_correction1)};
}

void check(const AdamWOptions& options) {
  check_beta("beta1", options.beta1);
  check_beta("beta2", options.beta2);
  if (!(std::isfinite(options.eps) && static_cast<float>(options.eps) > 0.0f)) {
    throw UsageError("optimizer.eps: {} is not a positive float; use a value such as 1e-8", options.eps);
  }
  if (!(std::isfinite(options.weight_decay) && options.weight_decay >= 0.0)) {
    throw UsageError("optimizer.weight_decay: {} is not a finite number >= 0; use 0 for none", options.weight_decay);
  }
}

AdamWStep adamw_step(const AdamWOptions& options, double lr, int64_t update, double gradient_scale, bool decays) {
  const auto t = static_cast<double>(update);
  return {.lr = lr,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.eps,
          .weight_decay = decays ? options.weight_decay : 0.0,
          .gradient_scale = gradient_scale,
          .bias_correction1 = 1.0 - std::pow(options.beta1, t),
          .bias_correction2 = 1.0 - std::pow(options.beta2, t)};
}

void adamw_update(const AdamWStep& step, const AdamWArrays& arrays, const bf16* gradient, int64_t n, ThreadPool* pool) {
  update(step, arrays, gradient, n, pool);
}

void adamw_update(const AdamWStep& step, const AdamWArrays& arrays, const float* gradient, int64_t n,
                  ThreadPool* pool) {
  update(step, arrays, gradient, n, pool);
}

void adamw_update(const AdamWStep& step, bf16* hi, int16_t* lo, const Moments& moments, const bf16* gradient, int64_t n,
                  ThreadPool* pool) {
  update(step, hi, lo, moments, gradient, n, pool);
}

void adamw_update(const AdamWStep& step, bf16* hi, int16_t* lo, const Moments& moments, const float* gradient,
                  int64_t n, ThreadPool* pool) {
  update(step, hi, lo, moments, gradient, n, pool);
}

}  // namespace lazytrain::optim
