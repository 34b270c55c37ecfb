// The plugin without a card: the emulation behind the same entry, for tests of the whole program.
#include "cuda/emulated_runtime.h"
#include "ops/cuda_testing.h"
#include "runtime/cuda_plugin.h"

namespace lazytrain::plugin {
namespace {

std::string libraries() { return "CUDA 0.0 (emulated)"; }

std::unique_ptr<cuda::Runtime> open_card(int) { return std::make_unique<cuda::ThreadedRuntime>(); }

// One thread: the bits of matrix products follow their number.
std::unique_ptr<ops::CudaLibraries> make_products() {
  static ThreadPool pool(1);
  return std::make_unique<ops::testing::CpuLibraries>(pool);
}

}  // namespace
}  // namespace lazytrain::plugin

extern "C" __attribute__((visibility("default"))) const lazytrain::runtime::CudaPlugin* lazytrain_cuda_plugin() {
  using namespace lazytrain;
  static const runtime::CudaPlugin plugin{.interface = runtime::kCudaInterface,
                                          .libraries = &plugin::libraries,
                                          .open_card = &plugin::open_card,
                                          .make_products = &plugin::make_products,
                                          .ops = &ops::cuda_kernels(),
                                          .optim = &optim::cuda_kernels()};
  return &plugin;
}
