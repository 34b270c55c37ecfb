#include "ops/cuda_kernels.h"

namespace lazytrain::ops {

const CudaKernels& cuda_kernels() {
  static const CudaKernels kernels{.rmsnorm_forward = &on_cuda::rmsnorm_forward,
                                   .rmsnorm_backward = &on_cuda::rmsnorm_backward,
                                   .rotary = &on_cuda::rotary,
                                   .swiglu_forward = &on_cuda::swiglu_forward,
                                   .swiglu_backward = &on_cuda::swiglu_backward,
                                   .add = &on_cuda::add,
                                   .copy_rows = &on_cuda::copy_rows,
                                   .add_bias = &on_cuda::add_bias,
                                   .column_sums = &on_cuda::column_sums,
                                   .gather_rows = &on_cuda::gather_rows,
                                   .scatter_add_rows = &on_cuda::scatter_add_rows,
                                   .fill_zero = &on_cuda::fill_zero,
                                   .cross_entropy = &on_cuda::cross_entropy,
                                   .add_losses = &on_cuda::add_losses,
                                   .attention_probabilities = &on_cuda::attention_probabilities,
                                   .attention_gradients = &on_cuda::attention_gradients,
                                   .head_dots = &on_cuda::head_dots,
                                   .store_rows = &on_cuda::store_rows};
  return kernels;
}

}  // namespace lazytrain::ops
