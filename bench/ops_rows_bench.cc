// Row ops (bytes a second, against the memory's own rate) and attention (milliseconds and GFLOPS of the causal half) at
// the shapes of Qwen2.5-0.5B: hidden 896, intermediate 4864, 14 query and 2 key/value heads of 64.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "ops/add.h"
#include "ops/attention.h"
#include "ops/rmsnorm.h"
#include "ops/rotary.h"
#include "ops/swiglu.h"

namespace {

using namespace lazytrain;
using namespace lazytrain::ops;

struct Free {
  void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{64}); }
};

// Memory, tokens and views of one op with all its inputs of the widths given.
class Setup {
 public:
  Setup(const CpuOp& op, DType activation, std::vector<int64_t> in_widths, std::vector<int64_t> document_lengths)
      : op_(op), activation_(activation), pool_(static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))) {
    starts_.push_back(0);
    for (const int64_t length : document_lengths) {
      for (int64_t i = 0; i < length; ++i) positions_.push_back(static_cast<int32_t>(i));
      starts_.push_back(static_cast<int32_t>(positions_.size()));
    }
    const auto count = static_cast<int64_t>(positions_.size());
    tokens_ = {
        .count = count, .ids = positions_, .positions = positions_, .targets = positions_, .doc_starts = starts_};
    dims_ = {count, count / static_cast<int64_t>(document_lengths.size()), size_of(activation)};
    for (const int64_t width : in_widths) {
      in_.push_back(random(activation, count, width));
      in_grad_.push_back(random(activation, count, width));
    }
    for (const auto& spec : op.outputs()) {
      out_.push_back(random(graph::dtype_of(spec.element, activation), count, spec.width));
      out_grad_.push_back(random(activation, count, spec.width));
    }
    for (const auto& spec : op.parameters()) {
      param_.push_back(random(activation, 1, spec.shape[0]));
      param_grad_.push_back(random(DType::kF32, 1, spec.shape[0]));
    }
    const int64_t scratch = op.cpu_scratch_bytes(dims_, pool_.threads());
    scratch_ = {static_cast<std::byte*>(allocate(scratch)), static_cast<size_t>(scratch)};
  }

  void forward() { op_.forward(context(), {.in = in_, .param = param_, .out = out_}); }
  void backward() {
    constexpr bool kAdd[3] = {false, false, false};
    op_.backward(context(), {.in = in_,
                             .param = param_,
                             .out = out_,
                             .out_grad = out_grad_,
                             .in_grad = in_grad_,
                             .add_in_grad = {kAdd, in_.size()},
                             .param_grad = param_grad_,
                             .add_param_grad = {kAdd, param_.size()}});
  }
  const graph::Dims& dims() const { return dims_; }
  const CpuOp& op() const { return op_; }

 private:
  CpuContext context() {
    return {.pool = &pool_, .activation = activation_, .tokens = &tokens_, .scratch = scratch_, .loss = nullptr};
  }
  void* allocate(int64_t bytes) {
    memory_.emplace_back(
        static_cast<std::byte*>(::operator new (static_cast<size_t>(bytes + 64), std::align_val_t{64})));
    std::memset(memory_.back().get(), 0, static_cast<size_t>(bytes));
    return memory_.back().get();
  }
  TensorView random(DType dtype, int64_t rows, int64_t cols) {
    const CounterRng rng(7, ++stream_);
    const TensorView view = dense(allocate(rows * cols * size_of(dtype)), dtype, rows, cols);
    for (int64_t i = 0; i < rows * cols; ++i) {
      const auto value = static_cast<float>(2 * rng.uniform(static_cast<uint64_t>(i)) - 1);
      if (dtype == DType::kBF16) {
        static_cast<bf16*>(view.data)[i] = to_bf16(value);
      } else {
        static_cast<float*>(view.data)[i] = value;
      }
    }
    return view;
  }

  const CpuOp& op_;
  DType activation_;
  ThreadPool pool_;
  std::vector<int32_t> positions_, starts_;
  Tokens tokens_;
  graph::Dims dims_;
  std::deque<std::unique_ptr<std::byte, Free>> memory_;
  std::vector<TensorView> in_, out_, param_, in_grad_, out_grad_, param_grad_;
  std::span<std::byte> scratch_;
  uint64_t stream_ = 0;
};

void report(benchmark::State& state, const graph::Work& work) {
  const auto runs = static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(work.bytes * runs * 1e-9, benchmark::Counter::kIsRate);
  state.counters["GFLOPS"] = benchmark::Counter(work.flops * runs * 1e-9, benchmark::Counter::kIsRate);
}

enum Pass { kForward, kBackward };

void run(benchmark::State& state, Setup& setup, Pass pass) {
  setup.forward();
  for (auto _ : state) pass == kForward ? setup.forward() : setup.backward();
  report(state, pass == kForward ? setup.op().forward_work(setup.dims()) : setup.op().backward_work(setup.dims()));
}

constexpr int64_t kTokens = 2048;
const std::vector<int64_t> kDocuments = {512, 512, 512, 512};

void rmsnorm(benchmark::State& state, Pass pass) {
  const RmsNorm op(896, 1e-6f);
  Setup setup(op, DType::kBF16, {896}, kDocuments);
  run(state, setup, pass);
}
void swiglu(benchmark::State& state, Pass pass) {
  const SwiGlu op(4864);
  Setup setup(op, DType::kBF16, {4864, 4864}, kDocuments);
  run(state, setup, pass);
}
void add(benchmark::State& state, Pass pass) {
  const Add op(896);
  Setup setup(op, DType::kBF16, {896, 896}, kDocuments);
  run(state, setup, pass);
}
void rotary(benchmark::State& state, Pass pass) {
  std::vector<float> inv_freq(32);
  for (size_t j = 0; j < inv_freq.size(); ++j) inv_freq[j] = std::pow(1e6f, -static_cast<float>(j) / 32);
  const Rotary op(14, 64, inv_freq, 1);
  Setup setup(op, DType::kBF16, {896}, kDocuments);
  run(state, setup, pass);
}
void attention(benchmark::State& state, Pass pass, DType activation, AttentionShape shape,
               const std::vector<int64_t>& documents) {
  const Attention op(shape.query_heads, shape.kv_heads, shape.head_dim, shape.scale);
  const int64_t q = shape.query_heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
  Setup setup(op, activation, {q, kv, kv}, documents);
  run(state, setup, pass);
}

// Sixteen sequences of `length` cached tokens, one new token each: bound by the cache that is read once.
void decode(benchmark::State& state) {
  const int64_t length = state.range(0), batch = 16;
  const AttentionShape shape{14, 2, 64, 0.125f};
  ThreadPool pool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  std::vector<bf16> cache(static_cast<size_t>(2 * batch * length * 128), to_bf16(0.5f));
  std::vector<bf16> q(static_cast<size_t>(batch * 896), to_bf16(0.25f)), out(q.size());
  std::vector<CachedSequence> sequences;
  for (int64_t b = 0; b < batch; ++b) {
    bf16* k = cache.data() + 2 * b * length * 128;
    sequences.push_back(
        {dense(k, DType::kBF16, length, 128), dense(k + length * 128, DType::kBF16, length, 128), length});
  }
  const int64_t bytes = attention_decode_scratch_bytes(shape, pool.threads());
  const std::unique_ptr<std::byte, Free> scratch(
      static_cast<std::byte*>(::operator new (static_cast<size_t>(bytes), std::align_val_t{64})));
  const CpuContext context{.pool = &pool,
                           .activation = DType::kBF16,
                           .tokens = nullptr,
                           .scratch = {scratch.get(), static_cast<size_t>(bytes)},
                           .loss = nullptr};
  for (auto _ : state) {
    attention_decode(context, shape, dense(q.data(), DType::kBF16, batch, 896), sequences,
                     dense(out.data(), DType::kBF16, batch, 896));
  }
  const double moved = static_cast<double>(2 * cache.size()), tokens = static_cast<double>(batch * length);
  report(state, {.flops = 4 * tokens * 896, .bytes = moved});
}

#define OP_BENCH(op)                                                                                               \
  BENCHMARK_CAPTURE(op, forward, kForward)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime(); \
  BENCHMARK_CAPTURE(op, backward, kBackward)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime()
OP_BENCH(rmsnorm);
OP_BENCH(swiglu);
OP_BENCH(add);
OP_BENCH(rotary);

#define ATTENTION_BENCH(name, ...)                                      \
  BENCHMARK_CAPTURE(attention, name##_forward, kForward, __VA_ARGS__)   \
      ->Unit(benchmark::kMillisecond)                                   \
      ->MeasureProcessCPUTime()                                         \
      ->UseRealTime();                                                  \
  BENCHMARK_CAPTURE(attention, name##_backward, kBackward, __VA_ARGS__) \
      ->Unit(benchmark::kMillisecond)                                   \
      ->MeasureProcessCPUTime()                                         \
      ->UseRealTime()
ATTENTION_BENCH(qwen_0_5b, DType::kBF16, AttentionShape{14, 2, 64, 0.125f}, kDocuments);
ATTENTION_BENCH(qwen_0_5b_fp32, DType::kF32, AttentionShape{14, 2, 64, 0.125f}, kDocuments);
ATTENTION_BENCH(one_document, DType::kBF16, AttentionShape{14, 2, 64, 0.125f}, std::vector<int64_t>{kTokens});
ATTENTION_BENCH(long_context, DType::kBF16, AttentionShape{14, 2, 64, 0.125f}, std::vector<int64_t>{8192});
ATTENTION_BENCH(head_dim_128, DType::kBF16, AttentionShape{12, 2, 128, 0.0883883f}, kDocuments);
ATTENTION_BENCH(head_dim_80, DType::kBF16, AttentionShape{12, 2, 80, 0.1118034f}, kDocuments);
ATTENTION_BENCH(short_documents, DType::kBF16, AttentionShape{14, 2, 64, 0.125f}, std::vector<int64_t>(16, 128));
BENCHMARK(decode)->Arg(256)->Arg(2048)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();

}  // namespace
