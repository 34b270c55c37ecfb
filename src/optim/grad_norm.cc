#include "optim/grad_norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/arith.h"
#include "optim/grad_norm_kernel.h"

namespace lazytrain::optim {
namespace {

// Blocks a thread takes at least: smaller pieces are not worth waking one.
constexpr int64_t kGrainBlocks = 8;

// Blocks whose sums are kept at a time, on the stack: 8 kB, and 4 M values between two waits for the pool.
constexpr int64_t kSumsAtOnce = 1024;

// Calls block(begin, count) -> double for every block of n values and adds the results in order.
template <typename Block>
GradientSum sum_blocks(int64_t n, ThreadPool* pool, const Block& block) {
  const int64_t blocks = div_ceil(n, kSumBlock);
  std::array<double, kSumsAtOnce> sums;
  double total = 0.0;
  for (int64_t first = 0; first < blocks; first += kSumsAtOnce) {
    const int64_t count = std::min(kSumsAtOnce, blocks - first);
    const auto range = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = (first + i) * kSumBlock;
        sums[static_cast<size_t>(i)] = block(at, std::min(kSumBlock, n - at));
      }
    };
    if (pool == nullptr) {
      range(0, count);
    } else {
      pool->parallel_for(count, kGrainBlocks, range);
    }
    for (int64_t i = 0; i < count; ++i) total += sums[static_cast<size_t>(i)];
  }
  // Squares of floats stay far below double's limit, so only an infinity or a NaN makes the total one.
  if (std::isfinite(total)) return {total, true};
  return {std::isnan(total) ? std::numeric_limits<double>::quiet_NaN() : total, false};
}

template <typename T>
std::optional<int64_t> find_nonfinite(const T* values, int64_t n, bool (*finite)(T)) {
  const T* found = std::find_if_not(values, values + n, finite);
  if (found == values + n) return std::nullopt;
  return found - values;
}

}  // namespace

GradientSum& GradientSum::operator+=(const GradientSum& other) {
  sum_of_squares += other.sum_of_squares;
  finite = finite && other.finite;
  return *this;
}

double GradientSum::norm() const { return std::sqrt(sum_of_squares); }

GradientSum sum_of_squares(const bf16* values, int64_t n, ThreadPool* pool) {
  return sum_blocks(n, pool, [&](int64_t begin, int64_t count) { return sum_block(values + begin, count); });
}

GradientSum sum_of_squares(const float* values, int64_t n, ThreadPool* pool) {
  return sum_blocks(n, pool, [&](int64_t begin, int64_t count) { return sum_block(values + begin, count); });
}

GradientSum round_to_bf16_and_sum(const float* in, bf16* out, int64_t n, ThreadPool* pool) {
  return sum_blocks(n, pool,
                    [&](int64_t begin, int64_t count) { return round_and_sum_block(in + begin, out + begin, count); });
}

std::optional<int64_t> first_nonfinite(const bf16* values, int64_t n) {
  return find_nonfinite<bf16>(values, n, [](bf16 v) { return (v.bits & 0x7f80u) != 0x7f80u; });
}

std::optional<int64_t> first_nonfinite(const float* values, int64_t n) {
  return find_nonfinite<float>(values, n, [](float v) { return std::isfinite(v); });
}

double clip_factor(double norm, double clip) {
  if (!(clip > 0.0)) return 1.0;
  return std::min(1.0, clip / (norm + 1e-6));
}

}  // namespace lazytrain::optim
