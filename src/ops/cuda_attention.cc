#include "ops/cuda_attention.h"

#include <algorithm>
#include <functional>

namespace lazytrain::ops {
namespace {

constexpr int64_t kMinRows = 16;  // of a chunk, however long the document

int64_t stride_of(int64_t keys) { return align_up(keys, 8); }

// How many floats of scores a chunk may have.
int64_t chunk_floats(int64_t heads, int64_t keys, int64_t limit_bytes) {
  return std::min(keys, std::max(kMinRows, limit_bytes / (4 * heads * stride_of(keys)))) * heads * stride_of(keys);
}

// Of the largest chunk of any document among so many tokens.
int64_t all_scores(int64_t heads, int64_t tokens, int64_t limit_bytes) {
  return std::min(heads * tokens * stride_of(tokens), std::max(limit_bytes / 4, kMinRows * heads * stride_of(tokens)));
}

// One call: the products of one document after the other.
class Call {
 public:
  Call(const CudaKernels& kernels, CudaLibraries& libraries, const AttentionShape& shape, const CudaContext& context,
       int64_t scores_bytes)
      : kernels_(kernels), libraries_(libraries), shape_(shape), context_(context), scores_bytes_(scores_bytes) {}

  // Calls f(document's first token, its tokens).
  template <typename F>
  void for_documents(const F& f) const {
    const auto& starts = context_.tokens.host.doc_starts;
    for (size_t i = 0; i + 1 < starts.size(); ++i) f(int64_t{starts[i]}, int64_t{starts[i + 1]} - starts[i]);
  }

  // Calls f(scores) for chunks of the queries of a document of n tokens, the last first. The scores of query i are
  // those of all keys up to the chunk's last query.
  template <typename F>
  void for_chunks(int64_t n, float* memory, const F& f) const {
    const int64_t rows = chunk_floats(shape_.query_heads, n, scores_bytes_) / (shape_.query_heads * stride_of(n));
    for (int64_t last = n; last > 0; last -= std::min(rows, last)) {
      const int64_t count = std::min(rows, last);
      f(on_cuda::Scores{.data = memory,
                        .heads = shape_.query_heads,
                        .rows = count,
                        .keys = last,
                        .stride = stride_of(last),
                        .head_step = count * stride_of(last),
                        .first_row = last - count,
                        .scale = shape_.scale});
    }
  }

  // For every key/value head at once, one query head of each group after the other: c (+)= op(a) op(b).
  // Heads of queries and scores are `group` heads apart, those of keys and values one.
  struct Operand {
    TensorView view;  // of head 0
    int64_t head;     // elements from one head to the next
    bool by_query;    // a query head's; else a key/value head's
    bool transposed = false;
  };
  void products(std::span<std::byte> scratch, const Operand& a, const Operand& b, const Operand& c,
                const std::function<bool(int64_t in_group)>& accumulate) const {
    const int64_t group = shape_.group();
    const auto step = [&](const Operand& x) { return x.by_query ? group * x.head : x.head; };
    const auto at = [&](const Operand& x, int64_t g) {
      TensorView view = x.view;
      if (x.by_query) view.data = static_cast<std::byte*>(view.data) + g * x.head * size_of(view.dtype);
      return view;
    };
    for (int64_t g = 0; g < group; ++g) {
      libraries_.gemm(context_.stream, scratch,
                      {.a = at(a, g),
                       .transpose_a = a.transposed,
                       .b = at(b, g),
                       .transpose_b = b.transposed,
                       .c = at(c, g),
                       .accumulate = accumulate(g)},
                      {.count = shape_.kv_heads, .a_step = step(a), .b_step = step(b), .c_step = step(c)});
    }
  }

  // Rows [first, first + count) of a matrix of heads.
  Operand heads(const TensorView& view, int64_t first, int64_t count, bool by_query, bool transposed = false) const {
    return {view.slice_rows(first, count).slice_cols(0, shape_.head_dim), shape_.head_dim, by_query, transposed};
  }
  // Scores as they are, or what stands in their place as `as`.
  static Operand scores(const on_cuda::Scores& s, float* data, DType as, bool transposed = false) {
    const int64_t wide = 4 / size_of(as);
    return {{data, as, s.rows, s.keys, wide * s.stride}, wide * s.head_step, true, transposed};
  }

  void forward(const ForwardArgs& args) const {
    const TensorView &q = args.in[0], &k = args.in[1], &v = args.in[2], &out = args.out[0], &lse = args.out[1];
    const auto never = [](int64_t) { return false; };
    CudaScratch scratch(context_.scratch);
    auto* memory = scratch.take<float>(all_scores(shape_.query_heads, q.rows, scores_bytes_));
    for_documents([&](int64_t first, int64_t n) {
      for_chunks(n, memory, [&](const on_cuda::Scores& s) {
        const int64_t row = first + s.first_row;
        products(scratch.rest(), heads(q, row, s.rows, true), heads(k, first, s.keys, false, true),
                 scores(s, memory, DType::kF32), never);
        kernels_.attention_probabilities(context_.stream, s, q.dtype, lse.slice_rows(row, s.rows));
        products(scratch.rest(), scores(s, memory, q.dtype), heads(v, first, s.keys, false),
                 heads(out, row, s.rows, true), never);
      });
    });
  }

  void backward(const BackwardArgs& args) const {
    const TensorView &q = args.in[0], &k = args.in[1], &v = args.in[2], &out = args.out[0], &lse = args.out[1];
    const TensorView &dout = args.out_grad[0], &dq = args.in_grad[0], &dk = args.in_grad[1], &dv = args.in_grad[2];
    const int64_t kv_width = shape_.kv_heads * shape_.head_dim;
    CudaScratch scratch(context_.scratch);
    auto* memory = scratch.take<float>(all_scores(shape_.query_heads, q.rows, scores_bytes_));
    auto* gradients = scratch.take<float>(all_scores(shape_.query_heads, q.rows, scores_bytes_));
    const TensorView delta =
        dense(scratch.take<float>(q.rows * shape_.query_heads), DType::kF32, q.rows, shape_.query_heads);
    const TensorView key_sums = dense(scratch.take<float>(q.rows * kv_width), DType::kF32, q.rows, kv_width);
    const TensorView value_sums = dense(scratch.take<float>(q.rows * kv_width), DType::kF32, q.rows, kv_width);
    kernels_.head_dots(context_.stream, dout, out, shape_.query_heads, delta);
    const auto never = [](int64_t) { return false; };
    for_documents([&](int64_t first, int64_t n) {
      for_chunks(n, memory, [&](const on_cuda::Scores& s) {
        const int64_t row = first + s.first_row;
        const bool begun = s.keys < n;  // the first chunk has all keys
        const auto adds = [&](int64_t g) { return begun || g > 0; };
        products(scratch.rest(), heads(q, row, s.rows, true), heads(k, first, s.keys, false, true),
                 scores(s, memory, DType::kF32), never);
        products(scratch.rest(), heads(dout, row, s.rows, true), heads(v, first, s.keys, false, true),
                 scores(s, gradients, DType::kF32), never);
        kernels_.attention_gradients(context_.stream, s, gradients, q.dtype, lse.slice_rows(row, s.rows),
                                     delta.slice_rows(row, s.rows));
        if (!dq.empty()) {
          products(scratch.rest(), scores(s, gradients, q.dtype), heads(k, first, s.keys, false),
                   heads(dq, row, s.rows, true), [&](int64_t) { return args.add_in_grad[0]; });
        }
        products(scratch.rest(), scores(s, gradients, q.dtype, true), heads(q, row, s.rows, true),
                 heads(key_sums, first, s.keys, false), adds);
        products(scratch.rest(), scores(s, memory, q.dtype, true), heads(dout, row, s.rows, true),
                 heads(value_sums, first, s.keys, false), adds);
      });
    });
    if (!dk.empty()) kernels_.store_rows(context_.stream, key_sums, dk, args.add_in_grad[1]);
    if (!dv.empty()) kernels_.store_rows(context_.stream, value_sums, dv, args.add_in_grad[2]);
  }

 private:
  const CudaKernels& kernels_;
  CudaLibraries& libraries_;
  const AttentionShape& shape_;
  const CudaContext& context_;
  int64_t scores_bytes_;
};

}  // namespace

int64_t CudaAttention::scratch_bytes(const graph::Dims& dims) const {
  const int64_t t = dims.tokens, d = shape_.head_dim;
  const int64_t scores = all_scores(shape_.query_heads, t, scores_bytes_);
  const DType type = dims.activation_bytes == 2 ? DType::kBF16 : DType::kF32;
  const int64_t products = std::max({libraries_.gemm_scratch_bytes({t, t, d, type, type, DType::kF32}),
                                     libraries_.gemm_scratch_bytes({t, d, t, type, type, type}),
                                     libraries_.gemm_scratch_bytes({t, d, t, type, type, DType::kF32})});
  const int64_t kv = CudaScratch::bytes_of(4 * t * shape_.kv_heads * d);
  return 2 * CudaScratch::bytes_of(4 * scores) + CudaScratch::bytes_of(4 * t * shape_.query_heads) + 2 * kv + products;
}

void CudaAttention::forward(const CudaContext& context, const ForwardArgs& args) const {
  Call(kernels_, libraries_, shape_, context, scores_bytes_).forward(args);
}

void CudaAttention::backward(const CudaContext& context, const BackwardArgs& args) const {
  Call(kernels_, libraries_, shape_, context, scores_bytes_).backward(args);
}

}  // namespace lazytrain::ops
