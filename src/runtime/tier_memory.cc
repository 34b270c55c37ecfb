#include "runtime/tier_memory.h"

#include <stdexcept>

namespace lazytrain::runtime {

TierMemory::TierMemory(const std::array<int64_t, 3>& bytes, const DiskOptions* disk, plan::Tier near_disk)
    : bytes_(bytes),
      near_disk_(near_disk),
      device_(bytes[static_cast<size_t>(plan::Tier::kDevice)], "activations"),
      host_(bytes[static_cast<size_t>(plan::Tier::kHost)], "weights and optimizer state") {
  const int64_t on_disk = bytes[static_cast<size_t>(plan::Tier::kDisk)];
  if (on_disk == 0) return;
  if (disk == nullptr) throw std::logic_error("the program has bytes on disk, and no disk is given");
  DiskOptions options = *disk;
  options.channels = kDiskUsers;
  disk_ = std::make_unique<DiskStore>(on_disk, options);
}

void TierMemory::register_with_disk() {
  const Arena& arena = near_disk_ == plan::Tier::kDevice ? device_ : host_;
  if (disk_ && arena.bytes() > 0) disk_->register_memory({arena.at(0), static_cast<size_t>(arena.bytes())});
}

void TierMemory::unregister_from_disk() {
  if (disk_) disk_->register_memory({});
}

TierMemory TierMemory::of(const plan::Program& program, const DiskOptions* disk) {
  return {program.tier_bytes, disk, program.one_memory ? plan::Tier::kDevice : plan::Tier::kHost};
}

}  // namespace lazytrain::runtime
