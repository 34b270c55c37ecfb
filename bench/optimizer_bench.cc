// The fused AdamW pass against the memory it has to move: a parameter reads 14 bytes (bf16 gradient, hi, lo, m, v) and
// writes 12. BM_Stream moves as many bytes
// in place through one array with almost no arithmetic: the limit of this machine.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/thread_pool.h"
#include "optim/adamw.h"
#include "optim/grad_norm.h"

namespace lazytrain::optim {
namespace {

constexpr int64_t kParameters = 100'000'000;
constexpr int64_t kBytesAParameter = 26;

struct Arrays {
  std::vector<bf16> gradient, hi;
  std::vector<int16_t> lo;
  std::vector<float> m, v;

  explicit Arrays(int64_t n)
      : gradient(static_cast<size_t>(n)),
        hi(gradient.size()),
        lo(gradient.size()),
        m(gradient.size(), 1e-3f),
        v(gradient.size(), 1e-6f) {
    for (size_t i = 0; i < gradient.size(); ++i) {
      const auto spread = static_cast<float>(i % 1021) - 510.0f;
      gradient[i] = to_bf16(1e-5f * spread);
      hi[i] = to_bf16(1e-3f * spread);
      lo[i] = static_cast<int16_t>(i);
    }
  }
  AdamWArrays view() { return {hi.data(), lo.data(), m.data(), v.data()}; }
};

void report(benchmark::State& state, int64_t bytes_an_element) {
  state.SetBytesProcessed(state.iterations() * kParameters * bytes_an_element);
  state.SetItemsProcessed(state.iterations() * kParameters);
}

void BM_AdamW(benchmark::State& state) {
  Arrays arrays(kParameters);
  ThreadPool pool(static_cast<int>(state.range(0)));
  int64_t update = 1;
  for ([[maybe_unused]] auto _ : state) {
    const AdamWStep step = adamw_step({.weight_decay = 0.01}, 1e-5, update++, 0.9, true);
    adamw_update(step, arrays.view(), arrays.gradient.data(), kParameters, &pool);
  }
  report(state, kBytesAParameter);
}
BENCHMARK(BM_AdamW)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

void BM_Stream(benchmark::State& state) {
  std::vector<uint64_t> words(static_cast<size_t>(kParameters * kBytesAParameter / 2 / 8), 1);
  ThreadPool pool(static_cast<int>(state.range(0)));
  for ([[maybe_unused]] auto _ : state) {
    pool.parallel_for(static_cast<int64_t>(words.size()), 16384, [&](int64_t begin, int64_t end) {
      uint64_t* at = words.data();
      for (int64_t i = begin; i < end; i += 8) {
        __builtin_prefetch(at + i + 256, 1);
        const int64_t stop = std::min(i + 8, end);
        for (int64_t k = i; k < stop; ++k) at[k] += 1;
      }
      benchmark::ClobberMemory();
    });
  }
  report(state, kBytesAParameter);
}
BENCHMARK(BM_Stream)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

void BM_SumOfSquaresBf16(benchmark::State& state) {
  const Arrays arrays(kParameters);
  ThreadPool pool(static_cast<int>(state.range(0)));
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(sum_of_squares(arrays.gradient.data(), kParameters, &pool));
  }
  report(state, 2);
}
BENCHMARK(BM_SumOfSquaresBf16)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

void BM_RoundAndSum(benchmark::State& state) {
  Arrays arrays(kParameters);
  ThreadPool pool(static_cast<int>(state.range(0)));
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(round_to_bf16_and_sum(arrays.m.data(), arrays.hi.data(), kParameters, &pool));
  }
  report(state, 6);
}
BENCHMARK(BM_RoundAndSum)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lazytrain::optim
