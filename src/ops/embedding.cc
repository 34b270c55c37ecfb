#include "ops/embedding.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/arith.h"
#include "ops/gemm_simd.h"

namespace lazytrain::ops {
namespace {

constexpr int64_t kRowGrain = 16;

void zero_rows(ThreadPool& pool, const TensorView& x) {
  pool.parallel_for(x.rows, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) std::fill_n(x.row<float>(r), x.cols, 0.0f);
  });
}

void add_token(const TensorView& dy, int64_t token, float* to) {
  if (dy.dtype == DType::kF32) {
    simd::add_row(dy.row<float>(token), to, dy.cols);
  } else {
    simd::add_row(dy.row<bf16>(token), to, dy.cols);
  }
}

}  // namespace

Embedding::Embedding(int64_t vocabulary, int64_t hidden) : vocabulary_(vocabulary), hidden_(hidden) {}

std::vector<graph::ValueSpec> Embedding::outputs() const { return {{.name = "out", .width = hidden_}}; }

std::vector<graph::ParameterSpec> Embedding::parameters() const {
  return {{.name = "weight", .shape = {vocabulary_, hidden_}, .init = graph::Init::kNormal}};
}

graph::Work Embedding::forward_work(const graph::Dims& dims) const {
  return {.bytes = 2.0 * static_cast<double>(dims.activation_bytes * dims.tokens * hidden_)};
}

graph::Work Embedding::backward_work(const graph::Dims& dims) const {
  const auto elements = static_cast<double>(dims.tokens * hidden_);
  return {.flops = elements,
          .bytes = elements * (static_cast<double>(dims.activation_bytes) + 8) +
                   4.0 * static_cast<double>(vocabulary_ * hidden_)};
}

int64_t Embedding::cpu_scratch_bytes(const graph::Dims& dims, int) const {
  return align_up(dims.tokens * int64_t{sizeof(int32_t)}, 64);
}

void Embedding::forward(const CpuContext& context, const ForwardArgs& args) const {
  const TensorView& weight = args.param[0];
  const TensorView& out = args.out[0];
  const auto& ids = context.tokens->ids;
  const auto row_bytes = static_cast<size_t>(hidden_ * size_of(out.dtype));
  context.pool->parallel_for(out.rows, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      std::memcpy(out.slice_rows(t, 1).data, weight.slice_rows(ids[static_cast<size_t>(t)], 1).data, row_bytes);
    }
  });
}

void Embedding::backward(const CpuContext& context, const BackwardArgs& args) const {
  const TensorView& dw = args.param_grad[0];
  const TensorView& dy = args.out_grad[0];
  if (dw.empty()) return;
  if (!args.add_param_grad[0]) zero_rows(*context.pool, dw);

  const int32_t* ids = context.tokens->ids.data();
  const int64_t count = dy.rows;
  auto* order = reinterpret_cast<int32_t*>(context.scratch.data());  // tokens by (id, position)
  std::iota(order, order + count, 0);
  std::sort(order, order + count, [&](int32_t a, int32_t b) { return ids[a] != ids[b] ? ids[a] < ids[b] : a < b; });
  // A thread takes the ids whose first token lies in its part, with all their tokens.
  context.pool->parallel_for(count, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < count; ++i) {
      const bool first = i == 0 || ids[order[i]] != ids[order[i - 1]];
      if (first && i >= end) break;
      if (!first && i == begin) {
        while (i + 1 < count && ids[order[i + 1]] == ids[order[i]]) ++i;
        continue;
      }
      add_token(dy, order[i], dw.row<float>(ids[order[i]]));
    }
  });
}

}  // namespace lazytrain::ops
