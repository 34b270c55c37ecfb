// liblazytrain_cuda.so: what the program takes out of it, and finding it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "cuda/runtime.h"
#include "ops/cuda_kernels.h"
#include "ops/cuda_libraries.h"
#include "optim/cuda_kernels.h"

namespace lazytrain::runtime {

// Rises with every change of what passes between program and library.
inline constexpr int kCudaInterface = 1;

struct CudaPlugin {
  int interface = 0;
  std::string (*libraries)() = nullptr;  // "CUDA 13.0 (driver 13.0), cuBLASLt 13.1.0"
  // RunError when there is no driver, it is too old, or there is no card of that number.
  std::unique_ptr<cuda::Runtime> (*open_card)(int number) = nullptr;
  std::unique_ptr<ops::CudaLibraries> (*make_products)() = nullptr;
  const ops::CudaKernels* ops = nullptr;
  const optim::CudaKernels* optim = nullptr;
};

// The library beside the program, or the file that LAZYTRAIN_CUDA_PLUGIN names. It stays loaded to the end of the
// process. Throws RunError that says why there is none: not built, a library it needs is missing, of another version.
const CudaPlugin& load_cuda_plugin();
const CudaPlugin& load_cuda_plugin(const std::filesystem::path& file);

}  // namespace lazytrain::runtime
