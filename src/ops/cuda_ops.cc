#include "ops/cuda_ops.h"

#include <algorithm>

#include "base/arith.h"
#include "base/error.h"
#include "ops/add.h"
#include "ops/cuda_attention.h"
#include "ops/linear.h"
#include "ops/lm_head_loss.h"
#include "ops/rmsnorm.h"
#include "ops/rotary.h"
#include "ops/swiglu.h"

namespace lazytrain::ops {
namespace {

DType activation_of(const graph::Dims& dims) { return dims.activation_bytes == 2 ? DType::kBF16 : DType::kF32; }

// The LM head goes over the tokens in chunks: their fp32 logits, which become the gradient in the activation dtype
// where they stand, and the loss of each token.
struct HeadShape {
  static constexpr int64_t kLogitsBytes = int64_t{256} << 20;
  static constexpr int64_t kMinChunk = 64;
  static constexpr int64_t kMostChunk = 2048;  // beyond it a GEMM gains nothing

  HeadShape(int64_t t, int64_t h, int64_t v, DType a)
      : tokens(t),
        hidden(h),
        vocabulary(v),
        activation(a),
        stride(align_up(v, 8)),
        chunk(std::min(t, std::clamp(kLogitsBytes / (4 * stride), kMinChunk, kMostChunk))) {}

  int64_t gemm_scratch_bytes(CudaLibraries& libraries) const {
    return std::max({libraries.gemm_scratch_bytes({chunk, vocabulary, hidden, activation, activation, DType::kF32}),
                     libraries.gemm_scratch_bytes({chunk, hidden, vocabulary, activation, activation, activation}),
                     libraries.gemm_scratch_bytes({vocabulary, hidden, chunk, activation, activation, DType::kF32})});
  }
  int64_t bytes(CudaLibraries& libraries) const {
    return CudaScratch::bytes_of(8 * tokens) + CudaScratch::bytes_of(4 * chunk * stride) +
           gemm_scratch_bytes(libraries);
  }

  int64_t tokens, hidden, vocabulary;
  DType activation;
  int64_t stride;  // of the logits, in floats
  int64_t chunk;
};

// One call of an op.
class Call {
 public:
  Call(const CudaKernels& kernels, CudaLibraries& libraries, const CudaContext& context)
      : kernels_(kernels), libraries_(libraries), context_(context), stream_(context.stream) {}

  void forward(const RmsNorm& op, const ForwardArgs& args) const {
    kernels_.rmsnorm_forward(stream_, args.in[0], args.param[0], op.eps(), args.out[0], args.out[1]);
  }
  void backward(const RmsNorm&, const BackwardArgs& args) const {
    const TensorView& x = args.in[0];
    CudaScratch scratch(context_.scratch);
    kernels_.rmsnorm_backward(stream_,
                              {.x = x,
                               .w = args.param[0],
                               .rstd = args.out[1],
                               .dy = args.out_grad[0],
                               .dx = args.in_grad[0],
                               .add_dx = args.add_in_grad[0],
                               .dw = args.param_grad[0],
                               .add_dw = args.add_param_grad[0],
                               .scratch = scratch.take<float>(on_cuda::rmsnorm_scratch_floats(x.rows, x.cols))});
  }

  void forward(const Rotary& op, const ForwardArgs& args) const { rotate(op, args.in[0], args.out[0], false, false); }
  void backward(const Rotary& op, const BackwardArgs& args) const {
    if (!args.in_grad[0].empty()) rotate(op, args.out_grad[0], args.in_grad[0], true, args.add_in_grad[0]);
  }

  void forward(const SwiGlu&, const ForwardArgs& args) const {
    kernels_.swiglu_forward(stream_, args.in[0], args.in[1], args.out[0]);
  }
  void backward(const SwiGlu&, const BackwardArgs& args) const {
    kernels_.swiglu_backward(stream_, {.gate = args.in[0],
                                       .up = args.in[1],
                                       .dy = args.out_grad[0],
                                       .dgate = args.in_grad[0],
                                       .add_dgate = args.add_in_grad[0],
                                       .dup = args.in_grad[1],
                                       .add_dup = args.add_in_grad[1]});
  }

  void forward(const Add&, const ForwardArgs& args) const {
    kernels_.add(stream_, args.in[0], args.in[1], args.out[0]);
  }
  void backward(const Add&, const BackwardArgs& args) const {
    const TensorView& dy = args.out_grad[0];
    for (size_t i = 0; i < 2; ++i) {
      const TensorView& dx = args.in_grad[i];
      if (dx.empty()) continue;
      if (args.add_in_grad[i]) {
        kernels_.add(stream_, dx, dy, dx);
      } else if (dx.data != dy.data) {
        kernels_.copy_rows(stream_, dy, dx);
      }
    }
  }

  void forward(const Linear& op, const ForwardArgs& args) const {
    gemm(context_.scratch, {.a = args.in[0],
                            .b = args.param[0],
                            .transpose_b = true,
                            .c = args.out[0],
                            .bias = op.has_bias() ? args.param[1] : TensorView{}});
  }
  void backward(const Linear& op, const BackwardArgs& args) const {
    const TensorView& dy = args.out_grad[0];
    if (!args.in_grad[0].empty()) {
      gemm(context_.scratch, {.a = dy, .b = args.param[0], .c = args.in_grad[0], .accumulate = args.add_in_grad[0]});
    }
    if (!args.param_grad[0].empty()) {
      gemm(context_.scratch, {.a = dy,
                              .transpose_a = true,
                              .b = args.in[0],
                              .c = args.param_grad[0],
                              .accumulate = args.add_param_grad[0]});
    }
    if (op.has_bias() && !args.param_grad[1].empty()) {
      CudaScratch scratch(context_.scratch);
      kernels_.column_sums(stream_, dy, args.param_grad[1], args.add_param_grad[1],
                           scratch.take<float>(on_cuda::column_sums_scratch_floats(dy.rows, dy.cols)));
    }
  }

  void forward(const Attention& op, const ForwardArgs& args) const {
    CudaAttention(kernels_, libraries_, op.shape()).forward(context_, args);
  }
  void backward(const Attention& op, const BackwardArgs& args) const {
    CudaAttention(kernels_, libraries_, op.shape()).backward(context_, args);
  }

  void forward(const LmHeadLoss&, const ForwardArgs& args) const {
    head(args.in[0], args.param[0], {}, false, {}, false);
  }
  void backward(const LmHeadLoss&, const BackwardArgs& args) const {
    head(args.in[0], args.param[0], args.in_grad[0], args.add_in_grad[0], args.param_grad[0], args.add_param_grad[0]);
  }

 private:
  void gemm(std::span<std::byte> scratch, const Gemm& product) const { libraries_.gemm(stream_, scratch, product, {}); }

  void rotate(const Rotary& op, const TensorView& x, const TensorView& y, bool inverse, bool add) const {
    kernels_.rotary(stream_, {.x = x,
                              .y = y,
                              .positions = context_.tokens.positions,
                              .inv_freq = op.inv_freq(),
                              .heads = op.heads(),
                              .head_dim = op.head_dim(),
                              .scaling = op.attention_scaling(),
                              .inverse = inverse,
                              .add = add});
  }

  // Loss, and gradients where their views are not empty. Rows without a target go through with gradients of zero.
  void head(const TensorView& n, const TensorView& weight, const TensorView& dn, bool add_dn, const TensorView& dw,
            bool add_dw) const {
    const HeadShape shape(n.rows, n.cols, weight.rows, n.dtype);
    CudaScratch scratch(context_.scratch);
    auto* nll = scratch.take<double>(shape.tokens);
    auto* memory = scratch.take<float>(shape.chunk * shape.stride);
    const bool gradients = !dn.empty() || !dw.empty();
    for (int64_t first = 0; first < shape.tokens; first += shape.chunk) {
      const int64_t count = std::min(shape.chunk, shape.tokens - first);
      const TensorView rows = n.slice_rows(first, count);
      const TensorView logits{memory, DType::kF32, count, shape.vocabulary, shape.stride};
      const bool halves = n.dtype == DType::kBF16;
      const TensorView dlogits{memory, n.dtype, count, shape.vocabulary, halves ? 2 * shape.stride : shape.stride};
      gemm(scratch.rest(), {.a = rows, .b = weight, .transpose_b = true, .c = logits});
      kernels_.cross_entropy(stream_, {.logits = logits,
                                       .targets = context_.tokens.targets + first,
                                       .scale = context_.tokens.host.loss_scale,
                                       .nll = nll + first,
                                       .dlogits = gradients ? dlogits : TensorView{}});
      if (!dn.empty()) {
        gemm(scratch.rest(), {.a = dlogits, .b = weight, .c = dn.slice_rows(first, count), .accumulate = add_dn});
      }
      if (!dw.empty()) {
        gemm(scratch.rest(),
             {.a = dlogits, .transpose_a = true, .b = rows, .c = dw, .accumulate = add_dw || first > 0});
      }
    }
    kernels_.add_losses(stream_, nll, context_.tokens.targets, shape.tokens, false, context_.loss);
  }

  const CudaKernels& kernels_;
  CudaLibraries& libraries_;
  const CudaContext& context_;
  cuda::Stream& stream_;
};

// Calls f with the op as what it is; false: it is none of those that run here.
template <typename Op, typename... Others, typename F>
bool as_any_of(const graph::OpKind& kind, const F& f) {
  if (const auto* op = dynamic_cast<const Op*>(&kind)) {
    f(*op);
    return true;
  }
  if constexpr (sizeof...(Others) > 0) return as_any_of<Others...>(kind, f);
  return false;
}
template <typename F>
bool as_op(const graph::OpKind& kind, const F& f) {
  return as_any_of<Linear, RmsNorm, Rotary, SwiGlu, Add, Attention, LmHeadLoss>(kind, f);
}

template <typename F>
void require_op(const graph::OpKind& kind, const F& f) {
  if (!as_op(kind, f)) throw UsageError("'{}' has no kernel for CUDA; train this model with device: cpu", kind.name());
}

struct ScratchBytes {
  const CudaKernels& kernels;
  CudaLibraries& libraries;
  const graph::Dims& dims;
  DType type;

  int64_t of(const RmsNorm& op) const {
    return CudaScratch::bytes_of(4 * on_cuda::rmsnorm_scratch_floats(dims.tokens, op.outputs()[0].width));
  }
  int64_t of(const Linear& op) const {
    const int64_t t = dims.tokens, bias = op.has_bias() ? on_cuda::column_sums_scratch_floats(t, op.out()) : 0;
    return std::max({CudaScratch::bytes_of(4 * bias),
                     libraries.gemm_scratch_bytes({t, op.out(), op.in(), type, type, type}),
                     libraries.gemm_scratch_bytes({t, op.in(), op.out(), type, type, type}),
                     libraries.gemm_scratch_bytes({op.out(), op.in(), t, type, type, DType::kF32})});
  }
  int64_t of(const Attention& op) const { return CudaAttention(kernels, libraries, op.shape()).scratch_bytes(dims); }
  int64_t of(const LmHeadLoss& op) const {
    return HeadShape(dims.tokens, op.hidden(), op.vocabulary(), type).bytes(libraries);
  }
  int64_t of(const graph::OpKind&) const { return 0; }
};

}  // namespace

bool CudaOps::runs(const graph::OpKind& kind) {
  return as_op(kind, [](const auto&) {});
}

int64_t CudaOps::scratch_bytes(const graph::OpKind& kind, const graph::Dims& dims) const {
  int64_t bytes = 0;
  as_op(kind, [&](const auto& op) { bytes = ScratchBytes{kernels_, libraries_, dims, activation_of(dims)}.of(op); });
  return bytes;
}

void CudaOps::forward(const CudaContext& context, const graph::OpKind& kind, const ForwardArgs& args) const {
  require_op(kind, [&](const auto& op) { Call(kernels_, libraries_, context).forward(op, args); });
}

void CudaOps::backward(const CudaContext& context, const graph::OpKind& kind, const BackwardArgs& args) const {
  require_op(kind, [&](const auto& op) { Call(kernels_, libraries_, context).backward(op, args); });
}

}  // namespace lazytrain::ops
