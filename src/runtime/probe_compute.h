// Rates of matrix products and attention on this machine's CPU.
#pragma once

#include <vector>

#include "base/dtype.h"
#include "base/thread_pool.h"
#include "hw/profile.h"
#include "runtime/arena.h"

namespace lazytrain::runtime {

// FLOPs a second over the three products of a linear layer of a training step (y = x Wᵀ, dx = dy W, dW += dyᵀ x), each
// at its fastest in `rounds` rounds of `budget_s`. Between rounds `between` runs: load of others that comes in bursts
// then spoils a round, not the figure.
double linear_layer_rate(ThreadPool& pool, const Arena& arena, DType compute, double budget_s, int rounds,
                         const std::function<void()>& between);
// The rows of that layer.
inline constexpr int64_t kLayerTokens = 512;

// y = x Wᵀ at several sizes, from a few rows to many.
std::vector<hw::GemmSample> gemm_samples(ThreadPool& pool, const Arena& arena, DType compute, double budget_s);

// The rows at which a product runs at half of its rate for many rows: h of 1/rate = (1 + h / m) / R, fitted by least
// squares to the samples of one weight's shape. 0 when few rows cost nothing.
double half_rows(const std::vector<hw::GemmSample>& samples);

// Causal attention, forward and backward, over documents of several lengths.
std::vector<hw::AttentionSample> attention_samples(ThreadPool& pool, const Arena& arena, DType compute,
                                                   double budget_s);

}  // namespace lazytrain::runtime
