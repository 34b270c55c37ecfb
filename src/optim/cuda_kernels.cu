#include "optim/cuda_kernels.h"

namespace lazytrain::optim {

const CudaKernels& cuda_kernels() {
  static const CudaKernels kernels{.adamw_update = &on_cuda::adamw_update,
                                   .adamw8_update = &on_cuda::adamw8_update,
                                   .sum_of_squares = &on_cuda::sum_of_squares,
                                   .round_to_bf16_and_sum = &on_cuda::round_to_bf16_and_sum,
                                   .round_to_bf16_in_place = &on_cuda::round_to_bf16_in_place};
  return kernels;
}

}  // namespace lazytrain::optim
