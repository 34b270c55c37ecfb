// Matrix products by shape and strategy, at the shapes of Qwen2.5-0.5B (hidden 896, intermediate 4864, k/v 128) and of
// generation, and the LM head with its loss. GFLOPS over all threads; fp32 is the yardstick of the widening strategy.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/gemm.h"
#include "ops/lm_head_loss.h"

namespace {

using lazytrain::dense;
using lazytrain::DType;
using lazytrain::TensorView;
using lazytrain::ThreadPool;
using namespace lazytrain::ops;

struct Free {
  void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{64}); }
};
using Bytes = std::unique_ptr<std::byte, Free>;

Bytes zeros(int64_t bytes) {
  Bytes p(static_cast<std::byte*>(::operator new (static_cast<size_t>(bytes + 64), std::align_val_t{64})));
  std::memset(p.get(), 0, static_cast<size_t>(bytes));
  return p;
}

struct Case {
  const char* name;
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  bool f32_result;
  bool accumulate;
};

constexpr Case kCases[] = {
    {"forward_gate", 2048, 4864, 896, false, true, false, false},
    {"forward_down", 2048, 896, 4864, false, true, false, false},
    {"forward_q", 2048, 896, 896, false, true, false, false},
    {"forward_k", 2048, 128, 896, false, true, false, false},
    {"dx_gate", 2048, 896, 4864, false, false, false, false},
    {"dx_gate_add", 2048, 896, 4864, false, false, false, true},
    {"dx_down", 2048, 4864, 896, false, false, false, false},
    {"dx_k_add", 2048, 896, 128, false, false, false, true},
    {"dw_gate", 4864, 896, 2048, true, false, true, false},
    {"dw_gate_add", 4864, 896, 2048, true, false, true, true},
    {"dw_down", 896, 4864, 2048, true, false, true, false},
    {"dw_k", 128, 896, 2048, true, false, true, false},
    {"ragged_gate", 317, 4864, 896, false, true, false, false},
    {"decode_1", 1, 49152, 576, false, true, true, false},
    {"decode_8", 8, 49152, 576, false, true, true, false},
    {"decode_16", 16, 49152, 576, false, true, true, false},
    {"decode_32", 32, 49152, 576, false, true, true, false},
};

enum Kind { kF32, kWiden, kNative };

void run(benchmark::State& state, const Case& c, Kind kind) {
  if (kind == kNative && !native_bf16_supported()) {
    state.SkipWithError("this CPU has no bf16 instructions");
    return;
  }
  const DType in = kind == kF32 ? DType::kF32 : DType::kBF16;
  const DType out = c.f32_result ? DType::kF32 : in;
  const GemmStrategy strategy = kind == kNative ? GemmStrategy::kNative : GemmStrategy::kWiden;
  ThreadPool pool(static_cast<int>(std::thread::hardware_concurrency()));
  const Bytes a = zeros(c.m * c.k * size_of(in)), b = zeros(c.n * c.k * size_of(in)),
              r = zeros(c.m * c.n * size_of(out));
  const int64_t scratch_bytes = gemm_scratch_bytes({c.m, c.n, c.k, in, in, out}, pool.threads(), strategy);
  const Bytes scratch = zeros(scratch_bytes);
  const Gemm g{.a = c.transpose_a ? dense(a.get(), in, c.k, c.m) : dense(a.get(), in, c.m, c.k),
               .transpose_a = c.transpose_a,
               .b = c.transpose_b ? dense(b.get(), in, c.n, c.k) : dense(b.get(), in, c.k, c.n),
               .transpose_b = c.transpose_b,
               .c = dense(r.get(), out, c.m, c.n),
               .accumulate = c.accumulate};
  for (auto _ : state) gemm(pool, {scratch.get(), static_cast<size_t>(scratch_bytes)}, g, strategy);
  const double flops = 2.0 * static_cast<double>(c.m) * static_cast<double>(c.n) * static_cast<double>(c.k);
  state.counters["GFLOPS"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["B_GBps"] = benchmark::Counter(static_cast<double>(c.n * c.k * size_of(in)) * 1e-9,
                                                benchmark::Counter::kIsIterationInvariantRate);
  state.counters["scratch_MB"] = static_cast<double>(scratch_bytes) * 1e-6;
}

// Loss and both gradients of the head of Qwen2.5-0.5B; every token counts.
void run_head(benchmark::State& state, int64_t tokens, Kind kind) {
  constexpr int64_t kHidden = 896, kVocabulary = 151936;
  if (kind == kNative && !native_bf16_supported()) {
    state.SkipWithError("this CPU has no bf16 instructions");
    return;
  }
  const DType type = kind == kF32 ? DType::kF32 : DType::kBF16;
  const LmHeadLoss op(kHidden, kVocabulary, kind == kNative ? GemmStrategy::kNative : GemmStrategy::kWiden);
  ThreadPool pool(static_cast<int>(std::thread::hardware_concurrency()));
  const Bytes n = zeros(tokens * kHidden * size_of(type)), w = zeros(kVocabulary * kHidden * size_of(type));
  const Bytes dn = zeros(tokens * kHidden * size_of(type)), dw = zeros(kVocabulary * kHidden * 4);
  const int64_t scratch_bytes = op.cpu_scratch_bytes({tokens, tokens, size_of(type)}, pool.threads());
  const Bytes scratch = zeros(scratch_bytes);
  const std::vector<int32_t> targets(static_cast<size_t>(tokens), 7);
  Tokens batch;
  batch.count = tokens;
  batch.targets = targets;
  LossSum loss;
  const CpuContext context{&pool, type, &batch, {scratch.get(), static_cast<size_t>(scratch_bytes)}, &loss};
  const TensorView in[] = {dense(n.get(), type, tokens, kHidden)},
                   param[] = {dense(w.get(), type, kVocabulary, kHidden)};
  const TensorView in_grad[] = {dense(dn.get(), type, tokens, kHidden)};
  const TensorView param_grad[] = {dense(dw.get(), DType::kF32, kVocabulary, kHidden)};
  const bool add[] = {false};
  const BackwardArgs args{in, param, {}, {}, in_grad, add, param_grad, add};
  for (auto _ : state) op.backward(context, args);
  state.counters["GFLOPS"] = benchmark::Counter(op.backward_work({tokens, tokens, size_of(type)}).flops * 1e-9,
                                                benchmark::Counter::kIsIterationInvariantRate);
  state.counters["scratch_MB"] = static_cast<double>(scratch_bytes) * 1e-6;
}

}  // namespace

int main(int argc, char** argv) {
  const std::pair<const char*, Kind> kinds[] = {{"fp32", kF32}, {"widen", kWiden}, {"native", kNative}};
  for (const Case& c : kCases) {
    for (const auto& [name, kind] : kinds) {
      benchmark::RegisterBenchmark((std::string(c.name) + "/" + name).c_str(),
                                   [&c, k = kind](benchmark::State& state) { run(state, c, k); })
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
  for (const int64_t tokens : {330, 2048}) {
    for (const auto& [name, kind] : kinds) {
      benchmark::RegisterBenchmark(("lm_head_" + std::to_string(tokens) + "/" + name).c_str(),
                                   [tokens, k = kind](benchmark::State& state) { run_head(state, tokens, k); })
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
