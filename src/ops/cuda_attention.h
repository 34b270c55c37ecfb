// Attention on a CUDA device from matrix products and row kernels: on any card, the same bits in every run.
#pragma once

#include "ops/attention.h"
#include "ops/cuda_context.h"
#include "ops/cuda_kernels.h"
#include "ops/cuda_libraries.h"

namespace lazytrain::ops {

// Document by document, and in chunks of queries whose scores stay under `scores_bytes`: scores of all heads, their
// softmax, its product with the values. Products are batched over the key/value heads. Backward makes the scores again;
// dk and dv are summed in fp32 over the chunks, the last first, and the heads of a group in order.
class CudaAttention {
 public:
  static constexpr int64_t kScoresBytes = int64_t{256} << 20;

  CudaAttention(const CudaKernels& kernels, CudaLibraries& libraries, const AttentionShape& shape,
                int64_t scores_bytes = kScoresBytes)
      : kernels_(kernels), libraries_(libraries), shape_(shape), scores_bytes_(scores_bytes) {}

  int64_t scratch_bytes(const graph::Dims& dims) const;
  // As Attention (ops/attention.h).
  void forward(const CudaContext& context, const ForwardArgs& args) const;
  void backward(const CudaContext& context, const BackwardArgs& args) const;

 private:
  const CudaKernels& kernels_;
  CudaLibraries& libraries_;
  AttentionShape shape_;
  int64_t scores_bytes_;
};

}  // namespace lazytrain::ops
