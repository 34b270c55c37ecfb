// Matrix products by cuBLASLt.
#pragma once

#include <memory>

#include "ops/cuda_libraries.h"

namespace lazytrain::plugin {

// Each product's algorithm is looked for once and kept: the same shapes, strides and alignment give the same algorithm,
// so the same bits on one kind of card.
std::unique_ptr<ops::CudaLibraries> make_cublaslt();

}  // namespace lazytrain::plugin
