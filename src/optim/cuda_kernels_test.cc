// The optimizer's kernels for CUDA under emulation: the bits of the CPU's, in any order of blocks and threads.
#include "optim/cuda_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "base/arith.h"
#include "base/rng.h"
#include "cuda/emulation.h"
#include "optim/adamw.h"
#include "optim/grad_norm.h"

namespace lazytrain::optim {
namespace {

using cuda::ImmediateStream;

constexpr std::array<uint64_t, 3> kOrders = {0, 1, 2};
// One, parts of a thread's elements, of a warp's, of a block's; several blocks.
constexpr std::array<int64_t, 7> kSizes = {1, 7, 64, 300, 4096, 5003, 20'000};

template <typename T>
std::vector<T> random_gradient(int64_t n, uint64_t stream) {
  const CounterRng rng(11, stream);
  std::vector<T> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) {
    // Of all sizes, with zeros among them.
    const double x = i % 17 == 0 ? 0 : rng.normal(i) * std::exp(8 * rng.normal(i + values.size()));
    if constexpr (sizeof(T) == 4) {
      values[i] = static_cast<float>(x);
    } else {
      values[i] = to_bf16(static_cast<float>(x));
    }
  }
  return values;
}

template <typename T>
DType dtype_of_gradient() {
  return sizeof(T) == 4 ? DType::kF32 : DType::kBF16;
}

// Weights and moments of n parameters; `shift` elements of room before them break the alignment.
struct State {
  State(int64_t n, int64_t shift) : n_(n), shift_(shift), hi(size()), lo(size()), m(size()), v(size()) {
    const CounterRng rng(5, 6);
    for (int64_t i = 0; i < n; ++i) {
      const SplitMaster weight = split_master(static_cast<float>(rng.normal(static_cast<uint64_t>(i))));
      hi[at(i)] = weight.hi;
      lo[at(i)] = weight.lo;
      m[at(i)] = static_cast<float>(0.01 * rng.normal(static_cast<uint64_t>(i + n)));
      v[at(i)] = m[at(i)] * m[at(i)];
    }
  }
  size_t size() const { return static_cast<size_t>(n_ + shift_); }
  size_t at(int64_t i) const { return static_cast<size_t>(i + shift_); }
  AdamWArrays arrays() { return {&hi[at(0)], &lo[at(0)], &m[at(0)], &v[at(0)]}; }
  bool operator==(const State& other) const = default;

  int64_t n_, shift_;
  std::vector<bf16> hi;
  std::vector<int16_t> lo;
  std::vector<float> m, v;
};

std::vector<AdamWStep> steps() {
  std::vector<AdamWStep> list;
  list.push_back(adamw_step({.weight_decay = 0.1}, 1e-3, 1, 1.0, true));
  list.push_back(adamw_step({.beta1 = 0.95, .beta2 = 0.98, .eps = 1e-6}, 3e-2, 2, 0.25, false));
  list.push_back(adamw_step({.beta1 = 0.3}, 1e-2, 1000, 1.0, true));  // the gradient is the nearer end of the lerp
  return list;
}

template <typename G>
void expect_adamw(int64_t n, int64_t shift) {
  for (const uint64_t order : kOrders) {
    State expected(n, shift), actual(n, shift);
    uint64_t number = 0;
    for (const AdamWStep& step : steps()) {
      const auto gradient = random_gradient<G>(n + shift, ++number);
      adamw_update(step, expected.arrays(), gradient.data() + shift, n, nullptr);
      ImmediateStream stream(order);
      on_cuda::adamw_update(stream, adamw_constants(step), actual.arrays(),
                            {gradient.data() + shift, dtype_of_gradient<G>()}, n);
      ASSERT_TRUE(actual == expected) << n << " parameters, update " << number << ", order " << order;
    }
    EXPECT_FALSE(actual == State(n, shift));
  }
}

TEST(CudaAdamW, GivesTheBitsOfTheCpu) {
  for (const int64_t n : kSizes) {
    for (const int64_t shift : {0, 1}) {
      expect_adamw<bf16>(n, shift);
      expect_adamw<float>(n, shift);
    }
  }
}

struct State8 : State {
  State8(int64_t n, int64_t shift, int64_t b)
      : State(n, shift), block(b), codes_m(size()), codes_v(size()), scales(static_cast<size_t>(2 * div_ceil(n, b))) {
    quantize_moments(&m[at(0)], &v[at(0)], moments(), n, nullptr);
  }
  Moments8 moments() { return {&codes_m[at(0)], &codes_v[at(0)], scales.data(), block}; }
  bool operator==(const State8& other) const = default;

  int64_t block;
  std::vector<int8_t> codes_m;
  std::vector<uint8_t> codes_v;
  std::vector<float> scales;
};

template <typename G>
void expect_adamw8(int64_t n, int64_t shift, int64_t block, uint64_t order) {
  State8 expected(n, shift, block), actual(n, shift, block);
  uint64_t number = 0;
  for (const AdamWStep& step : steps()) {
    const auto gradient = random_gradient<G>(n + shift, ++number);
    adamw_update(step, expected.arrays().hi, expected.arrays().lo, expected.moments(), gradient.data() + shift, n,
                 nullptr);
    ImmediateStream stream(order);
    on_cuda::adamw8_update(stream, adamw8_constants(step), actual.arrays().hi, actual.arrays().lo, actual.moments(),
                           {gradient.data() + shift, dtype_of_gradient<G>()}, n);
    ASSERT_TRUE(actual == expected) << n << " in blocks of " << block << ", update " << number << ", order " << order;
  }
  EXPECT_FALSE(actual == State8(n, shift, block));
}

TEST(CudaAdamW8, GivesTheBitsOfTheCpu) {
  for (const int64_t block : {64, 256, 512, 1024, 4096}) {
    for (const int64_t n : kSizes) {
      for (const uint64_t order : kOrders) {
        expect_adamw8<bf16>(n, 0, block, order);
        expect_adamw8<float>(n, n % 2, block, order);
      }
    }
  }
}

TEST(CudaAdamW8, ZerosStayZerosAndLargeGradientsFinite) {
  for (const float value : {0.0f, 3e38f}) {
    State8 expected(300, 0, 64), actual(300, 0, 64);
    const std::vector<float> gradient(300, value);
    const AdamWStep step = adamw_step({}, 1e-3, 1, 1.0, true);
    adamw_update(step, expected.arrays().hi, expected.arrays().lo, expected.moments(), gradient.data(), 300, nullptr);
    ImmediateStream stream(1);
    on_cuda::adamw8_update(stream, adamw8_constants(step), actual.arrays().hi, actual.arrays().lo, actual.moments(),
                           {gradient.data(), DType::kF32}, 300);
    EXPECT_TRUE(actual == expected) << value;
  }
}

TEST(CudaAdamW8, RefusesBlocksItCannotGroup) {
  State8 state(512, 0, 64);
  Moments8 moments = state.moments();
  moments.block = 192;
  const std::vector<float> gradient(512);
  ImmediateStream stream;
  EXPECT_THROW(on_cuda::adamw8_update(stream, {}, state.arrays().hi, state.arrays().lo, moments,
                                      {gradient.data(), DType::kF32}, 512),
               std::invalid_argument);
}

double cuda_sum(const on_cuda::Gradient& values, int64_t n, uint64_t order) {
  ImmediateStream stream(order);
  std::vector<double> sums(static_cast<size_t>(on_cuda::sum_block_count(n)), NAN);
  double total = NAN;
  on_cuda::sum_of_squares(stream, values, n, sums.data(), &total);
  return total;
}

TEST(CudaGradNorm, GivesTheBitsOfTheCpu) {
  for (const int64_t n : {int64_t{1}, int64_t{33}, int64_t{4096}, int64_t{4097}, int64_t{50'001}}) {
    for (const int64_t shift : {0, 1}) {
      const auto whole = random_gradient<float>(n + shift, 1);
      const auto halves = random_gradient<bf16>(n + shift, 2);
      const float* from = whole.data() + shift;
      std::vector<bf16> rounded(static_cast<size_t>(n)), expected(static_cast<size_t>(n));
      for (const uint64_t order : kOrders) {
        EXPECT_EQ(cuda_sum({from, DType::kF32}, n, order), sum_of_squares(from, n, nullptr).sum_of_squares);
        EXPECT_EQ(cuda_sum({halves.data() + shift, DType::kBF16}, n, order),
                  sum_of_squares(halves.data() + shift, n, nullptr).sum_of_squares);
        ImmediateStream stream(order);
        std::vector<double> sums(static_cast<size_t>(on_cuda::sum_block_count(n)));
        double total = 0;
        on_cuda::round_to_bf16_and_sum(stream, from, rounded.data(), n, sums.data(), &total);
        EXPECT_EQ(total, round_to_bf16_and_sum(from, expected.data(), n, nullptr).sum_of_squares);
        EXPECT_EQ(rounded, expected);
      }
    }
  }
}

TEST(CudaGradNorm, AnInfinityOrANanIsInTheSum) {
  for (const float value : {std::numeric_limits<float>::infinity(), NAN}) {
    for (const size_t at : {0u, 4095u, 9'999u}) {
      std::vector<float> values(10'000, 1.0f);
      values[at] = value;
      EXPECT_FALSE(std::isfinite(cuda_sum({values.data(), DType::kF32}, 10'000, 0)));
    }
  }
}

TEST(CudaGradNorm, RoundsInPlace) {
  for (const int64_t n : {int64_t{1}, int64_t{13}, int64_t{8192}, int64_t{8200}, int64_t{70'003}}) {
    for (const uint64_t order : kOrders) {
      auto data = random_gradient<float>(n, 1);
      std::vector<bf16> expected;
      for (const float v : data) expected.push_back(to_bf16(v));
      ImmediateStream stream(order);
      on_cuda::round_to_bf16_in_place(stream, data.data(), n);
      EXPECT_EQ(std::memcmp(data.data(), expected.data(), 2 * expected.size()), 0) << n << ", order " << order;
    }
  }
}

}  // namespace
}  // namespace lazytrain::optim
