#include "cuda/kernel.h"
#include "optim/cuda_kernels.h"
#include "optim/values_cuda.h"

namespace lazytrain::optim::on_cuda {
namespace {

using namespace lazytrain::cuda;

constexpr int kThreads = 256;
constexpr int kEach = 8;  // elements a thread

// Moves 26 bytes an element with bf16 gradients: 90 % of the memory rate. The order of operations is adamw_kernel.cc's.
template <typename G>
__global__ void adamw_kernel(AdamWConstants c, AdamWArrays a, const G* gradient, int64_t n, bool aligned) {
  const int64_t at = (block_x() * block_threads() + thread_x()) * kEach;
  const int count = count_at<kEach>(at, n);
  if (count == 0) return;
  auto hi = load_values<kEach>(a.hi + at, count, aligned);
  auto lo = load_values<kEach>(a.lo + at, count, aligned);
  auto ms = load_values<kEach>(a.m + at, count, aligned);
  auto vs = load_values<kEach>(a.v + at, count, aligned);
  const auto gs = load_values<kEach>(gradient + at, count, aligned);
  for (int i = 0; i < kEach; ++i) {
    const float g = widened(gs.v[i]) * c.gradient_scale;
    float p = merged(hi.v[i], lo.v[i]) * c.decay;
    const float toward = c.lerp_weight * (g - ms.v[i]);
    const float m = c.lerp_from_moment ? ms.v[i] + toward : g + toward;
    const float v = vs.v[i] * c.beta2 + c.one_minus_beta2 * g * g;
    const float denominator = sqrtf(v) / c.root_bias_correction2 + c.eps;
    p += c.minus_step_size * m / denominator;
    ms.v[i] = m;
    vs.v[i] = v;
    hi.v[i] = upper_half(p);
    lo.v[i] = lower_half(p);
  }
  store_values<kEach>(hi, a.hi + at, count, aligned);
  store_values<kEach>(lo, a.lo + at, count, aligned);
  store_values<kEach>(ms, a.m + at, count, aligned);
  store_values<kEach>(vs, a.v + at, count, aligned);
}

}  // namespace

void adamw_update(Stream& stream, const AdamWConstants& constants, const AdamWArrays& arrays, const Gradient& gradient,
                  int64_t n) {
  const bool aligned = starts_aligned(arrays.hi) && starts_aligned(arrays.lo) && starts_aligned(arrays.m) &&
                       starts_aligned(arrays.v) && starts_aligned(gradient.data);
  for_activation(gradient.dtype, [&]<typename G>(G) {
    launch(&adamw_kernel<G>, {(n + kThreads * kEach - 1) / (kThreads * kEach), 1}, kThreads, 0, stream, constants,
           arrays, static_cast<const G*>(gradient.data), n, aligned);
  });
}

}  // namespace lazytrain::optim::on_cuda
