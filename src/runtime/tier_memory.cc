#include "runtime/tier_memory.h"

#include <stdexcept>
#include <utility>

namespace lazytrain::runtime {

TierMemory::TierMemory(const std::array<int64_t, 3>& bytes, const DiskOptions* disk, plan::Tier near_disk,
                       std::unique_ptr<DeviceMemory> device)
    : bytes_(bytes),
      own_device_(std::move(device)),
      device_(own_device_ != nullptr ? 0 : bytes[static_cast<size_t>(plan::Tier::kDevice)], "activations"),
      host_(bytes[static_cast<size_t>(plan::Tier::kHost)], "weights and optimizer state") {
  const int64_t on_disk = bytes[static_cast<size_t>(plan::Tier::kDisk)];
  if (on_disk == 0) return;
  if (disk == nullptr) throw std::logic_error("the program has bytes on disk, and no disk is given");
  DiskOptions options = *disk;
  options.channels = kDiskUsers;
  disk_ = std::make_unique<DiskStore>(on_disk, options);
  const Arena& arena = near_disk == plan::Tier::kDevice ? device_ : host_;
  if (arena.bytes() > 0) disk_->register_memory({arena.at(0), static_cast<size_t>(arena.bytes())});
}

TierMemory TierMemory::of(const plan::Program& program, const DiskOptions* disk, std::unique_ptr<DeviceMemory> device) {
  return {program.tier_bytes, disk, program.one_memory ? plan::Tier::kDevice : plan::Tier::kHost, std::move(device)};
}

}  // namespace lazytrain::runtime
