#include "runtime/probe_compute.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/arith.h"
#include "base/error.h"
#include "ops/attention.h"
#include "ops/gemm.h"
#include "runtime/probe_timing.h"

namespace lazytrain::runtime {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kLayerIn = 512, kLayerOut = 1024;

// Hands an arena out from its start.
class Taker {
 public:
  explicit Taker(const Arena& arena) : arena_(arena) {}

  TensorView take(DType dtype, int64_t rows, int64_t cols) {
    const TensorView view = dense(arena_.at(taken_), dtype, rows, cols);
    advance(view.bytes());
    return view;
  }
  // For scratch, which is used after all else was taken.
  std::span<std::byte> rest(int64_t bytes) {
    std::byte* at = arena_.at(taken_);
    const int64_t begin = taken_;
    advance(bytes);
    taken_ = begin;
    return {at, static_cast<size_t>(bytes)};
  }

 private:
  void advance(int64_t bytes) {
    taken_ = align_up(taken_ + bytes, kLine);
    if (taken_ > arena_.bytes()) {
      throw RunError("the probe wants {} bytes of memory and has {}", taken_, arena_.bytes());
    }
  }
  const Arena& arena_;
  int64_t taken_ = 0;
};

double flops_of(const ops::Gemm& g) {
  return 2.0 * static_cast<double>(g.m()) * static_cast<double>(g.n()) * static_cast<double>(g.k());
}

double gemm_seconds(ThreadPool& pool, Taker& taker, const ops::Gemm& g, DType compute, double budget_s) {
  const ops::GemmStrategy strategy = ops::preferred_gemm_strategy();
  const ops::GemmSize size = {g.m(), g.n(), g.k(), compute, compute, g.c.dtype};
  const auto scratch = taker.rest(ops::gemm_scratch_bytes(size, pool.threads(), strategy));
  return fastest_seconds(budget_s, [&] { ops::gemm(pool, scratch, g, strategy); });
}

}  // namespace

double linear_layer_rate(ThreadPool& pool, const Arena& arena, DType compute, double budget_s, int rounds,
                         const std::function<void()>& between) {
  Taker taker(arena);
  const TensorView x = taker.take(compute, kLayerTokens, kLayerIn), w = taker.take(compute, kLayerOut, kLayerIn),
                   y = taker.take(compute, kLayerTokens, kLayerOut);
  const TensorView dw = taker.take(DType::kF32, kLayerOut, kLayerIn);
  const std::array<ops::Gemm, 3> products = {{{.a = x, .b = w, .transpose_b = true, .c = y},
                                              {.a = y, .b = w, .c = x},
                                              {.a = y, .transpose_a = true, .b = x, .c = dw, .accumulate = true}}};
  std::array<double, 3> seconds;
  seconds.fill(std::numeric_limits<double>::max());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < products.size(); ++i) {
      seconds[i] = std::min(seconds[i], gemm_seconds(pool, taker, products[i], compute, budget_s));
    }
    between();
  }
  double flops = 0;
  for (const ops::Gemm& product : products) flops += flops_of(product);
  return flops / std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

std::vector<hw::GemmSample> gemm_samples(ThreadPool& pool, const Arena& arena, DType compute, double budget_s) {
  struct Size {
    int64_t rows, out, in;
  };
  constexpr std::array kSizes = {Size{16, 1024, 1024},  Size{64, 1024, 1024},   Size{256, 1024, 1024},
                                 Size{512, 1024, 1024}, Size{2048, 1024, 1024}, Size{512, 4096, 1024},
                                 Size{512, 1024, 4096}, Size{2048, 2048, 2048}};
  std::vector<hw::GemmSample> samples;
  for (const Size& size : kSizes) {
    Taker taker(arena);
    const TensorView x = taker.take(compute, size.rows, size.in), w = taker.take(compute, size.out, size.in),
                     y = taker.take(compute, size.rows, size.out);
    const ops::Gemm product{.a = x, .b = w, .transpose_b = true, .c = y};
    const double seconds = gemm_seconds(pool, taker, product, compute, budget_s);
    samples.push_back({size.rows, size.out, size.in, flops_of(product) / seconds});
  }
  return samples;
}

double half_rows(const std::vector<hw::GemmSample>& samples) {
  // s = 1/rate over u = 1/m is a line a + b u with h = b / a. Relative errors count alike, so points weigh 1/s².
  double sw = 0, su = 0, ss = 0, suu = 0, sus = 0;
  for (const hw::GemmSample& sample : samples) {
    if (sample.n != samples.front().n || sample.k != samples.front().k) continue;
    const double u = 1 / static_cast<double>(sample.m), s = 1 / sample.flops, w = sample.flops * sample.flops;
    sw += w;
    su += w * u;
    ss += w * s;
    suu += w * u * u;
    sus += w * u * s;
  }
  const double determinant = sw * suu - su * su;
  if (!(determinant > 0)) return 0;
  const double slope = (sw * sus - su * ss) / determinant, intercept = (suu * ss - su * sus) / determinant;
  return intercept > 0 ? std::max(0.0, slope / intercept) : 0;
}

std::vector<hw::AttentionSample> attention_samples(ThreadPool& pool, const Arena& arena, DType compute,
                                                   double budget_s) {
  constexpr int64_t kTokens = 1024, kQueryHeads = 8, kKvHeads = 2, kHeadDim = 64;
  constexpr std::array<bool, 3> kOverwrite = {false, false, false};
  const ops::Attention op(kQueryHeads, kKvHeads, kHeadDim, 0.125f);
  std::vector<int32_t> positions(kTokens);
  std::vector<hw::AttentionSample> samples;
  for (const int64_t context : {128, 512, 1024}) {
    Taker taker(arena);
    const auto row = [&](DType dtype, int64_t width) { return taker.take(dtype, kTokens, width); };
    constexpr int64_t kQ = kQueryHeads * kHeadDim, kKv = kKvHeads * kHeadDim;
    const std::array in = {row(compute, kQ), row(compute, kKv), row(compute, kKv)};
    const std::array out = {row(compute, kQ), row(DType::kF32, kQueryHeads)};
    const std::array out_grad = {row(compute, kQ), TensorView{}};
    const std::array in_grad = {row(compute, kQ), row(compute, kKv), row(compute, kKv)};
    std::vector<int32_t> starts;
    for (int64_t t = 0; t <= kTokens; t += context) starts.push_back(static_cast<int32_t>(t));
    for (int64_t t = 0; t < kTokens; ++t) positions[static_cast<size_t>(t)] = static_cast<int32_t>(t % context);
    const ops::Tokens tokens{.count = kTokens, .ids = {}, .positions = positions, .targets = {}, .doc_starts = starts};
    const graph::Dims dims{kTokens, context, size_of(compute)};
    const ops::CpuContext call{.pool = &pool,
                               .activation = compute,
                               .tokens = &tokens,
                               .scratch = taker.rest(op.cpu_scratch_bytes(dims, pool.threads())),
                               .loss = nullptr};
    const double seconds = fastest_seconds(budget_s, [&] {
      op.forward(call, {.in = in, .param = {}, .out = out});
      op.backward(call, {.in = in,
                         .param = {},
                         .out = out,
                         .out_grad = out_grad,
                         .in_grad = in_grad,
                         .add_in_grad = kOverwrite,
                         .param_grad = {},
                         .add_param_grad = {}});
    });
    const double flops = op.forward_work(dims).flops + op.backward_work(dims).flops;
    samples.push_back({kTokens, context, kQueryHeads, kKvHeads, kHeadDim, flops / seconds});
  }
  return samples;
}

}  // namespace lazytrain::runtime
