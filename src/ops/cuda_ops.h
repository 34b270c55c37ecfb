// The ops of a graph on a CUDA device: each as its kernels (ops/cuda_kernels.h) and calls of libraries.
#pragma once

#include "ops/cuda_context.h"
#include "ops/cuda_kernels.h"
#include "ops/cuda_libraries.h"

namespace lazytrain::ops {

class CudaOps {
 public:
  CudaOps(const CudaKernels& kernels, CudaLibraries& libraries) : kernels_(kernels), libraries_(libraries) {}

  // Whether the op can run on the device. The embedding runs on the host, by rows.
  static bool runs(const graph::OpKind& kind);
  int64_t scratch_bytes(const graph::OpKind& kind, const graph::Dims& dims) const;

  // As CpuOp::forward and backward; UsageError for an op that does not run here.
  void forward(const CudaContext& context, const graph::OpKind& kind, const ForwardArgs& args) const;
  void backward(const CudaContext& context, const graph::OpKind& kind, const BackwardArgs& args) const;

 private:
  const CudaKernels& kernels_;
  CudaLibraries& libraries_;
};

}  // namespace lazytrain::ops
