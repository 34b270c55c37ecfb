// The global L2 norm of the gradient, taken piece by piece as gradients arrive, and the clip factor made from it.
#pragma once

#include <cstdint>
#include <optional>

#include "base/dtype.h"
#include "base/thread_pool.h"

namespace lazytrain::optim {

// Sum of squares of a piece of the gradient. Pieces are added in a fixed order (the units', not that of arrival), so
// that the norm of a step does not depend on the schedule.
struct GradientSum {
  double sum_of_squares = 0.0;
  bool finite = true;  // false: an infinity or a NaN is among the values

  GradientSum& operator+=(const GradientSum& other);
  double norm() const;
};

// Over n values. Squares are exact in double; the order of the additions is fixed by n alone: blocks of kSumBlock
// values, in a block one running sum for each index modulo 32, those added as a tree, then the blocks from the first to
// the last. The same bits from every instruction set and any number of threads. `pool` may be null.
inline constexpr int64_t kSumBlock = 4096;
GradientSum sum_of_squares(const bf16* values, int64_t n, ThreadPool* pool);
GradientSum sum_of_squares(const float* values, int64_t n, ThreadPool* pool);

// Writes n values rounded to nearest bf16 (to_bf16) and sums the squares of the rounded ones in the same pass. A value
// that rounds to infinity makes the sum non-finite. `in` and `out` must not overlap.
GradientSum round_to_bf16_and_sum(const float* in, bf16* out, int64_t n, ThreadPool* pool);

// Index of the first infinity or NaN, to name the tensor it is in; none when all are finite.
std::optional<int64_t> first_nonfinite(const bf16* values, int64_t n);
std::optional<int64_t> first_nonfinite(const float* values, int64_t n);

// min(1, clip / (norm + 1e-6)) as torch.nn.utils.clip_grad_norm_; clip <= 0 is off and gives 1.
double clip_factor(double norm, double clip);

}  // namespace lazytrain::optim
