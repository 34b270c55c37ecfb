#include "ops/linear.h"

#include <algorithm>

#include "ops/gemm_simd.h"

namespace lazytrain::ops {
namespace {

// db (+)= Σ_t dy, each column summed by one thread in the order of the tokens.
void add_columns(ThreadPool& pool, const TensorView& dy, const TensorView& db, bool accumulate) {
  constexpr int64_t kGrain = 64;
  pool.parallel_for(dy.cols, kGrain, [&](int64_t begin, int64_t end) {
    float* sum = db.row<float>(0) + begin;
    if (dy.dtype == DType::kF32) {
      simd::column_sums(dy.row<float>(0) + begin, dy.stride, dy.rows, end - begin, sum, accumulate);
    } else {
      simd::column_sums(dy.row<bf16>(0) + begin, dy.stride, dy.rows, end - begin, sum, accumulate);
    }
  });
}

}  // namespace

Linear::Linear(int64_t in, int64_t out, bool bias, GemmStrategy strategy)
    : in_(in), out_(out), bias_(bias), strategy_(strategy) {}

std::vector<graph::ValueSpec> Linear::outputs() const { return {{.name = "out", .width = out_}}; }

std::vector<graph::ParameterSpec> Linear::parameters() const {
  std::vector<graph::ParameterSpec> result{{.name = "weight", .shape = {out_, in_}, .init = graph::Init::kNormal}};
  if (bias_) result.push_back({.name = "bias", .shape = {out_}, .init = graph::Init::kZeros});
  return result;
}

graph::Work Linear::forward_work(const graph::Dims& dims) const {
  const auto t = static_cast<double>(dims.tokens), in = static_cast<double>(in_), out = static_cast<double>(out_);
  const auto element = static_cast<double>(dims.activation_bytes);
  return {.flops = 2 * t * in * out, .bytes = element * (t * (in + out) + in * out + (bias_ ? out : 0))};
}

graph::Work Linear::backward_work(const graph::Dims& dims) const {
  const auto t = static_cast<double>(dims.tokens), in = static_cast<double>(in_), out = static_cast<double>(out_);
  const auto element = static_cast<double>(dims.activation_bytes);
  // dx reads dy and W, dW reads dy and x and writes fp32; the bias reads dy once more.
  const double bias = bias_ ? element * t * out + 4 * out : 0;
  return {.flops = 4 * t * in * out + (bias_ ? t * out : 0),
          .bytes = element * (t * (2 * out + 2 * in) + in * out) + 4 * in * out + bias};
}

int64_t Linear::cpu_scratch_bytes(const graph::Dims& dims, int threads) const {
  const DType type = dims.activation_bytes == 2 ? DType::kBF16 : DType::kF32;
  const int64_t t = dims.tokens;
  return std::max({gemm_scratch_bytes({t, out_, in_, type, type, type}, threads, strategy_),
                   gemm_scratch_bytes({t, in_, out_, type, type, type}, threads, strategy_),
                   gemm_scratch_bytes({out_, in_, t, type, type, DType::kF32}, threads, strategy_)});
}

void Linear::forward(const CpuContext& context, const ForwardArgs& args) const {
  const Gemm product{.a = args.in[0],
                     .b = args.param[0],
                     .transpose_b = true,
                     .c = args.out[0],
                     .bias = bias_ ? args.param[1] : TensorView{}};
  gemm(*context.pool, context.scratch, product, strategy_);
}

void Linear::backward(const CpuContext& context, const BackwardArgs& args) const {
  const TensorView& dy = args.out_grad[0];
  if (!args.in_grad[0].empty()) {
    const Gemm dx{.a = dy, .b = args.param[0], .c = args.in_grad[0], .accumulate = args.add_in_grad[0]};
    gemm(*context.pool, context.scratch, dx, strategy_);
  }
  if (!args.param_grad[0].empty()) {
    const Gemm dw{
        .a = dy, .transpose_a = true, .b = args.in[0], .c = args.param_grad[0], .accumulate = args.add_param_grad[0]};
    gemm(*context.pool, context.scratch, dw, strategy_);
  }
  if (bias_ && !args.param_grad[1].empty()) {
    add_columns(*context.pool, dy, args.param_grad[1], args.add_param_grad[1]);
  }
}

}  // namespace lazytrain::ops
