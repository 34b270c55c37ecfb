// The calls of the CUDA runtime on a card.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string_view>

#include "cuda/runtime.h"

namespace lazytrain::plugin {

// RunError "CUDA, WHAT: ..." unless the call succeeded.
void check(cudaError_t error, std::string_view what);

cudaStream_t native(cuda::Stream& stream);

// The card of that number; RunError when it is not there or its driver is too old.
std::unique_ptr<cuda::Runtime> open_card(int number);

}  // namespace lazytrain::plugin
