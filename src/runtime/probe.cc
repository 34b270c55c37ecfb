#include "runtime/probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "base/arith.h"
#include "ops/gemm.h"
#include "optim/adamw.h"
#include "plan/timeline.h"
#include "runtime/arena.h"

namespace lazytrain::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kLine = 64;
// Larger than the caches that two threads may fill, small beside any model that is trained.
constexpr int64_t kQuickBytes = int64_t{96} << 20;
constexpr int64_t kThoroughBytes = int64_t{256} << 20;
// A linear layer of a training step.
constexpr int64_t kTokens = 512, kIn = 512, kOut = 1024;
constexpr int kLaunches = 200;

double seconds_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The fastest of repetitions behind one that warms up (pages, primitives, clocks), for `budget_s` but three at least:
// what others do on the machine meanwhile is not the machine.
double fastest_seconds(double budget_s, const std::function<void()>& work) {
  work();
  double fastest = std::numeric_limits<double>::max();
  const auto begin = Clock::now();
  for (int i = 0; i < 3 || std::chrono::duration<double>(Clock::now() - begin).count() < budget_s; ++i) {
    fastest = std::min(fastest, seconds_of(work));
  }
  return fastest;
}

// The three products of a linear layer: y = x Wᵀ, dx = dy W, dW += dyᵀ x.
double gemm_rate(ThreadPool& pool, const Arena& arena, DType compute, double budget_s) {
  int64_t taken = 0;
  const auto take = [&](DType dtype, int64_t rows, int64_t cols) {
    const TensorView view = dense(arena.at(taken), dtype, rows, cols);
    taken = align_up(taken + view.bytes(), kLine);
    return view;
  };
  const TensorView x = take(compute, kTokens, kIn), w = take(compute, kOut, kIn), y = take(compute, kTokens, kOut);
  const TensorView dw = take(DType::kF32, kOut, kIn);
  const std::array<ops::Gemm, 3> products = {{{.a = x, .b = w, .transpose_b = true, .c = y},
                                              {.a = y, .b = w, .c = x},
                                              {.a = y, .transpose_a = true, .b = x, .c = dw, .accumulate = true}}};
  const ops::GemmStrategy strategy = ops::preferred_gemm_strategy();
  double flops = 0, seconds = 0;
  for (const ops::Gemm& product : products) {
    const ops::GemmSize size = {product.m(), product.n(), product.k(), compute, compute, product.c.dtype};
    const int64_t scratch = ops::gemm_scratch_bytes(size, pool.threads(), strategy);
    if (taken + scratch > arena.bytes()) {
      throw RunError("the probe's matrix product wants {} bytes of scratch on {} threads", scratch, pool.threads());
    }
    const std::span<std::byte> space(arena.at(taken), static_cast<size_t>(scratch));
    seconds += fastest_seconds(budget_s, [&] { ops::gemm(pool, space, product, strategy); });
    flops += 2.0 * static_cast<double>(size.m) * static_cast<double>(size.n) * static_cast<double>(size.k);
  }
  return flops / seconds;
}

// c = 0.5 a + b: what a row op moves, 12 bytes an element.
double stream_rate(ThreadPool& pool, const Arena& arena, double budget_s) {
  const int64_t n = arena.bytes() / 12 / kLine * kLine;
  const auto* a = reinterpret_cast<const float*>(arena.at(0));
  const auto* b = reinterpret_cast<const float*>(arena.at(4 * n));
  auto* c = reinterpret_cast<float*>(arena.at(8 * n));
  const double seconds = fastest_seconds(budget_s, [&] {
    pool.parallel_for(n, kLine, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) c[i] = 0.5f * a[i] + b[i];
    });
  });
  return 12.0 * static_cast<double>(n) / seconds;
}

double update_rate(ThreadPool& pool, const Arena& arena, DType compute, double budget_s) {
  const int64_t n = arena.bytes() / (12 + size_of(compute)) / kLine * kLine;
  const optim::AdamWArrays arrays = {
      .hi = reinterpret_cast<bf16*>(arena.at(0)),
      .lo = reinterpret_cast<int16_t*>(arena.at(2 * n)),
      .m = reinterpret_cast<float*>(arena.at(4 * n)),
      .v = reinterpret_cast<float*>(arena.at(8 * n)),
  };
  const optim::AdamWStep step = optim::adamw_step({}, 1e-3, 1, 1.0, true);
  std::byte* gradient = arena.at(12 * n);
  const double seconds = fastest_seconds(budget_s, [&] {
    if (compute == DType::kBF16) {
      optim::adamw_update(step, arrays, reinterpret_cast<const bf16*>(gradient), n, &pool);
    } else {
      optim::adamw_update(step, arrays, reinterpret_cast<const float*>(gradient), n, &pool);
    }
  });
  return plan::kUpdateBytes * static_cast<double>(n) / seconds;
}

}  // namespace

hw::Profile measure_this_machine(ThreadPool& pool, DType compute, bool quick) {
  // Every thread of a product may want some MiB of scratch.
  const int64_t scratch = int64_t{8 << 20} * pool.threads() + (int64_t{16} << 20);
  const Arena arena(std::max(quick ? kQuickBytes : kThoroughBytes, scratch), "the probe of this machine");
  // Finite data of a usual size; it also takes the pages before anything is timed.
  pool.parallel_for(arena.bytes(), kLine, [&](int64_t begin, int64_t end) {
    std::memset(arena.at(begin), 0x3c, static_cast<size_t>(end - begin));  // 0.0115 as float and as bf16
  });
  const double budget_s = quick ? 0.02 : 0.3;
  hw::Profile profile;
  profile.name = "this";
  profile.one_memory = true;
  profile.gemm_flops = gemm_rate(pool, arena, compute, budget_s);
  profile.memory_bandwidth = stream_rate(pool, arena, budget_s);
  // Restores what the streams and products left: the optimizer must not meet infinities.
  std::memset(arena.at(0), 0, static_cast<size_t>(arena.bytes()));
  profile.host_bandwidth = update_rate(pool, arena, compute, budget_s);
  profile.launch_s = seconds_of([&] {
                       for (int i = 0; i < kLaunches; ++i) pool.run(pool.threads(), [](int64_t) {});
                     }) /
                     kLaunches;
  const int64_t available = hw::available_memory() + arena.bytes();  // the probe's own memory is free again behind it
  profile.device_bytes = available;
  profile.host_bytes = available;
  return profile;
}

}  // namespace lazytrain::runtime
