// A CUDA card in use: what it is, its memory, and the device that runs a program on it.
#pragma once

#include <memory>

#include "runtime/cuda_device.h"
#include "runtime/cuda_plugin.h"

namespace lazytrain::runtime {

class CudaCard {
 public:
  CudaCard(std::unique_ptr<cuda::Runtime> runtime, std::unique_ptr<ops::CudaLibraries> libraries,
           const ops::CudaKernels& ops, const optim::CudaKernels& optim)
      : runtime_(std::move(runtime)), libraries_(std::move(libraries)), ops_(ops), optim_(optim) {}
  // Card 0 of the plugin. RunError as load_cuda_plugin and CudaPlugin::open_card.
  static std::shared_ptr<CudaCard> open();

  cuda::Runtime& runtime() const { return *runtime_; }
  // Of an op where a program of this card runs it: here, or on the host with so many threads.
  int64_t scratch_bytes(const graph::OpKind& kind, const graph::Dims& dims, int host_threads) const;
  std::unique_ptr<DeviceMemory> memory_of(const plan::Program& program) const;
  DeviceMaker device() const;  // the card outlives what it makes

 private:
  std::unique_ptr<cuda::Runtime> runtime_;
  std::unique_ptr<ops::CudaLibraries> libraries_;
  const ops::CudaKernels& ops_;
  const optim::CudaKernels& optim_;
};

}  // namespace lazytrain::runtime
