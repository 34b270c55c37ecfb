// The fused AdamW passes against the memory they have to move. fp32 moments: a parameter reads 14 bytes (bf16 gradient,
// hi, lo, m, v) and writes 12. 8-bit: reads 8 + 8 / block (gradient, hi, lo, two codes, two scales a block) and writes
// 6 + 8 / block. BM_Stream moves as many bytes as the first in place through one array with almost no arithmetic: the
// limit of this machine. bench/optimizer.sh runs it beside the optimizers of others.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <vector>

#include "base/dtype.h"
#include "base/thread_pool.h"
#include "optim/adamw.h"
#include "optim/grad_norm.h"

namespace lazytrain::optim {
namespace {

constexpr int64_t kMillion = 1'000'000;
constexpr int64_t kFp32Bytes = 26;

struct Weights {
  std::vector<bf16> gradient, hi;
  std::vector<int16_t> lo;

  explicit Weights(int64_t n) : gradient(static_cast<size_t>(n)), hi(gradient.size()), lo(gradient.size()) {
    uint32_t random = 1;
    for (size_t i = 0; i < gradient.size(); ++i) {
      random = random * 1664525u + 1013904223u;
      const auto spread = static_cast<float>(random >> 16) - 32768.0f;
      gradient[i] = to_bf16(1e-9f * spread * (1.0f + static_cast<float>(i % 61)));
      hi[i] = to_bf16(1e-6f * spread);
      lo[i] = static_cast<int16_t>(i);
    }
  }
};

void arguments(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"millions", "threads"})->ArgsProduct({{100, 400}, {1, 2}});
  benchmark->MinTime(1.0)->UseRealTime()->Unit(benchmark::kMillisecond);
}

// Times body() over the run and reports the least as counters, as for the peers: other work on the machine only adds.
template <typename Body>
void measure(benchmark::State& state, double bytes_an_element, const Body& body) {
  using Clock = std::chrono::steady_clock;
  double least_s = 1e9, least_cpu_s = 1e9;
  for ([[maybe_unused]] auto _ : state) {
    const auto start = Clock::now();
    const std::clock_t start_cpu = std::clock();
    body();
    least_cpu_s = std::min(least_cpu_s, static_cast<double>(std::clock() - start_cpu) / CLOCKS_PER_SEC);
    least_s = std::min(least_s, std::chrono::duration<double>(Clock::now() - start).count());
  }
  const auto elements = static_cast<double>(state.range(0) * kMillion);
  state.counters["least_ms"] = 1e3 * least_s;
  state.counters["least_cpu_ms"] = 1e3 * least_cpu_s;  // of all threads
  state.counters["bytes/s"] = bytes_an_element * elements / least_s;
}

void run(benchmark::State& state, const Moments& moments, Weights& w, double bytes_an_element) {
  const int64_t n = state.range(0) * kMillion;
  ThreadPool pool(static_cast<int>(state.range(1)));
  int64_t update = 1;
  const auto step = [&] {
    const AdamWStep now = adamw_step({.weight_decay = 0.01}, 1e-5, update++, 0.9, true);
    adamw_update(now, w.hi.data(), w.lo.data(), moments, w.gradient.data(), n, &pool);
  };
  step();
  measure(state, bytes_an_element, step);
}

void BM_AdamW(benchmark::State& state) {
  Weights weights(state.range(0) * kMillion);
  std::vector<float> m(weights.hi.size()), v(weights.hi.size());
  run(state, Moments32{m.data(), v.data()}, weights, kFp32Bytes);
}
BENCHMARK(BM_AdamW)->Apply(arguments);

template <int64_t kBlock>
void BM_AdamW8Bit(benchmark::State& state) {
  Weights weights(state.range(0) * kMillion);
  std::vector<int8_t> m(weights.hi.size());
  std::vector<uint8_t> v(weights.hi.size());
  std::vector<float> scales(2 * (weights.hi.size() / kBlock + 1));
  run(state, Moments8{m.data(), v.data(), scales.data(), kBlock}, weights, 14.0 + 16.0 / kBlock);
}
BENCHMARK_TEMPLATE(BM_AdamW8Bit, 256)->Apply(arguments);
BENCHMARK_TEMPLATE(BM_AdamW8Bit, 4096)->Apply(arguments);

void BM_Stream(benchmark::State& state) {
  std::vector<uint64_t> words(static_cast<size_t>(state.range(0) * kMillion * kFp32Bytes / 2 / 8), 1);
  ThreadPool pool(static_cast<int>(state.range(1)));
  measure(state, kFp32Bytes, [&] {
    pool.parallel_for(static_cast<int64_t>(words.size()), 16384, [&](int64_t begin, int64_t end) {
      uint64_t* at = words.data();
      for (int64_t i = begin; i < end; i += 8) {
        __builtin_prefetch(at + i + 256, 1);
        const int64_t stop = std::min(i + 8, end);
        for (int64_t k = i; k < stop; ++k) at[k] += 1;
      }
      benchmark::ClobberMemory();
    });
  });
}
BENCHMARK(BM_Stream)->Apply(arguments);

void BM_SumOfSquaresBf16(benchmark::State& state) {
  const Weights weights(state.range(0) * kMillion);
  ThreadPool pool(static_cast<int>(state.range(1)));
  measure(state, 2,
          [&] { benchmark::DoNotOptimize(sum_of_squares(weights.gradient.data(), state.range(0) * kMillion, &pool)); });
}
BENCHMARK(BM_SumOfSquaresBf16)->Apply(arguments);

void BM_RoundAndSum(benchmark::State& state) {
  Weights weights(state.range(0) * kMillion);
  const std::vector<float> gradient(weights.hi.size(), 1e-3f);
  ThreadPool pool(static_cast<int>(state.range(1)));
  measure(state, 6, [&] {
    benchmark::DoNotOptimize(
        round_to_bf16_and_sum(gradient.data(), weights.hi.data(), state.range(0) * kMillion, &pool));
  });
}
BENCHMARK(BM_RoundAndSum)->Apply(arguments);

}  // namespace
}  // namespace lazytrain::optim
