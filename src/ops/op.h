// The CPU side of an op: kernels over views whose shapes were proven when the program was compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/tensor_view.h"
#include "base/thread_pool.h"
#include "graph/op_kind.h"

namespace lazytrain::ops {

// Sum of the negative log-likelihoods of counted targets, and their number.
struct LossSum {
  double nll = 0;
  int64_t count = 0;
};

// The tokens of one micro-batch: documents one after the other, without padding.
struct Tokens {
  int64_t count = 0;                    // T
  std::span<const int32_t> ids;         // [T]
  std::span<const int32_t> positions;   // [T], restarting at 0 in each document
  std::span<const int32_t> targets;     // [T], the next token where it counts, else -1
  std::span<const int32_t> doc_starts;  // [documents + 1], first 0, last T
  double loss_scale = 1;                // gradient of one counted token's loss: 1 / counted tokens of the whole step
};

// What a call may use besides its views. `scratch` is what cpu_scratch_bytes() asked for, 64-byte aligned.
struct CpuContext {
  ThreadPool* pool = nullptr;
  DType activation = DType::kBF16;
  const Tokens* tokens = nullptr;
  std::span<std::byte> scratch;
  LossSum* loss = nullptr;  // where the loss op adds up (set, not added: one call a micro-batch)
};

struct ForwardArgs {
  std::span<const TensorView> in;
  std::span<const TensorView> param;
  std::span<const TensorView> out;
};

// Views of inputs and outputs that backward_reads() does not name are empty.
struct BackwardArgs {
  std::span<const TensorView> in;
  std::span<const TensorView> param;
  std::span<const TensorView> out;
  std::span<const TensorView> out_grad;
  std::span<const TensorView> in_grad;     // activation dtype
  std::span<const bool> add_in_grad;       // per input: add to what stands there instead of overwriting
  std::span<const TensorView> param_grad;  // fp32
  std::span<const bool> add_param_grad;    // per parameter, likewise
};

class CpuOp : public graph::OpKind {
 public:
  virtual void forward(const CpuContext& context, const ForwardArgs& args) const = 0;
  virtual void backward(const CpuContext& context, const BackwardArgs& args) const = 0;
  // Temporary bytes that a forward or backward call needs.
  virtual int64_t cpu_scratch_bytes(const graph::Dims& dims, int threads) const {
    (void)dims;
    (void)threads;
    return 0;
  }
};

}  // namespace lazytrain::ops
