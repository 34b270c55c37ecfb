// The bytes of a program's tiers: an arena each for device and host, an extent on disk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "plan/program.h"
#include "runtime/arena.h"
#include "runtime/disk_store.h"

namespace lazytrain::runtime {

// Who uses the disk: each has a channel of the DiskStore, so that none waits for another.
enum class DiskUser : int { kReadLane, kWriteLane, kState };
inline constexpr int kDiskUsers = 3;

class TierMemory {
 public:
  // `bytes` by tier (Program::tier_bytes). `disk` may be null when the disk tier is empty; what passes between it and
  // memory does so in the arena of `near_disk`. Throws what Arena and DiskStore throw when the system refuses.
  TierMemory(const std::array<int64_t, 3>& bytes, const DiskOptions* disk, plan::Tier near_disk = plan::Tier::kHost);
  static TierMemory of(const plan::Program& program, const DiskOptions* disk);

  // Registers with the disk the arena that its lanes move through (DiskStore::register_memory), which takes all of its
  // pages; or takes that back. Without a disk nothing happens.
  void register_with_disk();
  void unregister_from_disk();
  // Gives pages of the device's or the host's memory back (Arena::release).
  void release(plan::Tier tier, int64_t begin, int64_t end) {
    (tier == plan::Tier::kDevice ? device_ : host_).release(begin, end);
  }

  // Of the device or the host.
  std::byte* at(plan::Tier tier, int64_t offset) const {
    return (tier == plan::Tier::kDevice ? device_ : host_).at(offset);
  }
  int64_t bytes(plan::Tier tier) const { return bytes_[static_cast<size_t>(tier)]; }
  bool has_disk() const { return disk_ != nullptr; }
  DiskStore::Channel& disk(DiskUser user) const { return disk_->channel(static_cast<int>(user)); }

 private:
  std::array<int64_t, 3> bytes_;
  plan::Tier near_disk_;
  Arena device_, host_;
  std::unique_ptr<DiskStore> disk_;
};

}  // namespace lazytrain::runtime
