// What the program takes out of this library (runtime/cuda_plugin.h).
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "plugin/cuda_runtime.h"
#include "plugin/gemm_cublaslt.h"
#include "runtime/cuda_plugin.h"

namespace lazytrain::plugin {
namespace {

std::string libraries() {
  int runtime = 0, driver = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  const size_t blas = cublasLtGetVersion();
  return fmt::format("CUDA {}.{} (driver {}.{}), cuBLASLt {}.{}.{}", runtime / 1000, runtime % 1000 / 10, driver / 1000,
                     driver % 1000 / 10, blas / 10000, blas % 10000 / 100, blas % 100);
}

}  // namespace
}  // namespace lazytrain::plugin

extern "C" __attribute__((visibility("default"))) const lazytrain::runtime::CudaPlugin* lazytrain_cuda_plugin() {
  using namespace lazytrain;
  static const runtime::CudaPlugin plugin{.interface = runtime::kCudaInterface,
                                          .libraries = &plugin::libraries,
                                          .open_card = &plugin::open_card,
                                          .make_products = &plugin::make_cublaslt,
                                          .ops = &ops::cuda_kernels(),
                                          .optim = &optim::cuda_kernels()};
  return &plugin;
}
