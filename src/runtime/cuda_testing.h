// A CUDA device without a card: emulated runtime and kernels, matrix products by the CPU.
#pragma once

#include <memory>
#include <utility>

#include "cuda/emulated_runtime.h"
#include "ops/cuda_testing.h"
#include "runtime/cuda_card.h"
#include "runtime/run_record.h"

namespace lazytrain::runtime::testing {

// A card that is none, with a runtime of the kind asked for.
template <typename Runtime>
class EmulatedCard {
 public:
  template <typename... Arguments>
  explicit EmulatedCard(ThreadPool& pool, Arguments&&... arguments)
      : EmulatedCard(pool, std::make_unique<Runtime>(std::forward<Arguments>(arguments)...)) {}

  std::unique_ptr<DeviceMemory> memory_of(const plan::Program& program) const { return card.memory_of(program); }
  DeviceMaker device() const { return card.device(); }

 private:
  EmulatedCard(ThreadPool& pool, std::unique_ptr<Runtime> own)
      : runtime(*own),
        card(std::move(own), std::make_unique<ops::testing::CpuLibraries>(pool), ops::cuda_kernels(),
             optim::cuda_kernels()) {}

 public:
  Runtime& runtime;
  CudaCard card;
};

}  // namespace lazytrain::runtime::testing
