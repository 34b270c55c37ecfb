#include <bit>
#include <stdexcept>

#include "cuda/kernel.h"
#include "optim/cuda_kernels.h"
#include "optim/moments8.h"
#include "optim/values_cuda.h"

namespace lazytrain::optim::on_cuda {
namespace {

using namespace lazytrain::cuda;

constexpr int kThreads = 256;
constexpr int kEach = 16;  // elements a thread: 128 bits of codes
static_assert(kThreads * kEach == kLargestBlock);

// The largest value of a group of threads (a power of two of them) that have one block of moments.
__device__ inline float group_max(float v, int group, float* space) {
  for (int mask = (group < kWarp ? group : kWarp) / 2; mask > 0; mask /= 2) v = fmaxf(v, shuffle_xor(v, mask));
  if (group <= kWarp) return v;
  const int warp = thread_x() / kWarp, warps = group / kWarp, first = warp / warps * warps;
  if (thread_x() % kWarp == 0) space[warp] = v;
  sync_threads();
  float most = space[first];
  for (int w = 1; w < warps; ++w) most = fmaxf(most, space[first + w]);
  sync_threads();
  return most;
}

// moments8-inl.h, element by element.
__device__ inline int8_t m_code(float m, float factor) {
  const float x = copysignf(sqrtf(fabsf(m) * factor), m);
  return static_cast<int8_t>(std::bit_cast<uint32_t>(x + 12582912.0f) & 0xffu);
}
__device__ inline uint8_t v_code(float root, float factor) {
  constexpr int kFractionBits = 12;
  const int32_t dither = std::bit_cast<int32_t>(root) & ((1 << kFractionBits) - 1);
  const int32_t sum = std::bit_cast<int32_t>(sqrtf(root * factor) + 2048.0f) + dither;
  const int32_t one = std::bit_cast<int32_t>(2049.0f);
  const int32_t code = root > 0.0f && sum < one ? one : sum;
  return static_cast<uint8_t>(static_cast<uint32_t>(code) >> kFractionBits & 0xffu);
}

// A thread has 16 elements, whose new moments stay in registers until the largest of their block is known. Moves 14
// bytes an element with bf16 gradients, and 16 a block of moments: 80 % of the memory rate. The order of operations is
// adamw8_kernel.cc's.
template <typename G>
__global__ void adamw8_kernel(AdamW8Constants c, bf16* hi_at, int16_t* lo_at, Moments8 moments, const G* gradient,
                              int64_t n, bool aligned) {
  float* const space = shared_memory<float>();
  const int64_t at = (block_x() * block_threads() + thread_x()) * kEach;
  const int count = count_at<kEach>(at, n);
  const auto group = static_cast<int>(moments.block / kEach);
  float* const scales = moments.scales + 2 * (at / moments.block);
  const bool alive = at / moments.block * moments.block < n;  // the block of moments is there, if only in part
  const float m_step = alive ? scales[0] * c.m_decay : 0.0f, root_step = alive ? scales[1] * c.root_decay : 0.0f;

  auto hi = load_values<kEach>(hi_at + at, count, aligned);
  auto lo = load_values<kEach>(lo_at + at, count, aligned);
  auto m_codes = load_values<kEach>(moments.m + at, count, aligned);
  auto v_codes = load_values<kEach>(moments.v + at, count, aligned);
  const auto gs = load_values<kEach>(gradient + at, count, aligned);
  float ms[kEach], roots[kEach];
  float most_m = 0, most_root = 0;
  for (int i = 0; i < kEach; ++i) {
    const float g = fmaxf(fminf(widened(gs.v[i]), c.gradient_limit), -c.gradient_limit);
    const auto m_before = static_cast<float>(m_codes.v[i]), v_before = static_cast<float>(v_codes.v[i]);
    const float of_root = g * c.gradient_to_root, old_root = v_before * v_before * root_step;
    ms[i] = m_before * fabsf(m_before) * m_step + g * c.gradient_to_m;
    roots[i] = sqrtf(old_root * old_root + of_root * of_root);
    most_m = fmaxf(most_m, fabsf(ms[i]));
    most_root = fmaxf(most_root, roots[i]);
    const float denominator = roots[i] * c.root_to_denominator + c.eps;
    const float p = merged(hi.v[i], lo.v[i]) * c.weight_decay - c.step_size * ms[i] / denominator;
    hi.v[i] = upper_half(p);
    lo.v[i] = lower_half(p);
  }
  store_values<kEach>(hi, hi_at + at, count, aligned);
  store_values<kEach>(lo, lo_at + at, count, aligned);

  most_m = group_max(most_m, group, space);
  most_root = group_max(most_root, group, space);
  if (most_m < kSmallestScaleOfM) most_m = 0.0f;
  const BlockFactors factors(most_m, most_root);
  for (int i = 0; i < kEach; ++i) {
    m_codes.v[i] = m_code(ms[i], factors.m);
    v_codes.v[i] = v_code(roots[i], factors.root);
  }
  store_values<kEach>(m_codes, moments.m + at, count, aligned);
  store_values<kEach>(v_codes, moments.v + at, count, aligned);
  if (!alive || thread_x() % group != 0) return;
  scales[0] = most_m;
  scales[1] = most_root;
}

}  // namespace

void adamw8_update(Stream& stream, const AdamW8Constants& constants, bf16* hi, int16_t* lo, const Moments8& moments,
                   const Gradient& gradient, int64_t n) {
  if (moments.block < kSmallestBlock || moments.block > kLargestBlock ||
      !std::has_single_bit(static_cast<uint64_t>(moments.block))) {
    throw std::invalid_argument("8-bit moments: blocks are a power of two from 64 to 4096 elements");
  }
  const bool aligned = starts_aligned(hi) && starts_aligned(lo) && starts_aligned(moments.m) &&
                       starts_aligned(moments.v) && starts_aligned(gradient.data);
  for_activation(gradient.dtype, [&]<typename G>(G) {
    launch(&adamw8_kernel<G>, {(n + kLargestBlock - 1) / kLargestBlock, 1}, kThreads,
           static_cast<int64_t>(sizeof(float)) * kThreads / kWarp, stream, constants, hi, lo, moments,
           static_cast<const G*>(gradient.data), n, aligned);
  });
}

}  // namespace lazytrain::optim::on_cuda
