#include "runtime/cuda_card.h"

#include "runtime/executor.h"

namespace lazytrain::runtime {

std::shared_ptr<CudaCard> CudaCard::open() {
  const CudaPlugin& plugin = load_cuda_plugin();
  auto card = plugin.open_card(0);
  return std::make_shared<CudaCard>(std::move(card), plugin.make_products(), *plugin.ops, *plugin.optim);
}

int64_t CudaCard::scratch_bytes(const graph::OpKind& kind, const graph::Dims& dims, int host_threads) const {
  if (!ops::CudaOps::runs(kind)) return Executor::scratch_bytes(kind, dims, host_threads);
  return ops::CudaOps(ops_, *libraries_).scratch_bytes(kind, dims);
}

std::unique_ptr<DeviceMemory> CudaCard::memory_of(const plan::Program& program) const {
  return make_cuda_memory(*runtime_, program.tier_bytes[static_cast<size_t>(plan::Tier::kDevice)],
                          device_state_bytes(program));
}

DeviceMaker CudaCard::device() const {
  return [this](const graph::Graph& graph, const plan::Program& program, const TierMemory& memory) {
    return make_cuda_device({*runtime_, ops_, optim_, *libraries_}, graph, program, memory);
  };
}

}  // namespace lazytrain::runtime
