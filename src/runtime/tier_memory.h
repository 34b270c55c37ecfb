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

// Memory of a device of its own, which only the device can address.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::byte* at(int64_t offset) const = 0;
  // Copies; they wait until they are done. Not while a step runs.
  virtual void read(int64_t offset, std::span<std::byte> to) = 0;
  virtual void write(int64_t offset, std::span<const std::byte> from) = 0;
};

class TierMemory {
 public:
  // `bytes` by tier (Program::tier_bytes). `disk` may be null when the disk tier is empty; what passes between it and
  // memory does so in the arena of `near_disk`. `device`: the device tier's memory where it is not the CPU's. Throws
  // what Arena and DiskStore throw when the system refuses.
  TierMemory(const std::array<int64_t, 3>& bytes, const DiskOptions* disk, plan::Tier near_disk = plan::Tier::kHost,
             std::unique_ptr<DeviceMemory> device = nullptr);
  static TierMemory of(const plan::Program& program, const DiskOptions* disk,
                       std::unique_ptr<DeviceMemory> device = nullptr);

  // Of the device or the host.
  std::byte* at(plan::Tier tier, int64_t offset) const {
    if (tier == plan::Tier::kDevice && own_device_ != nullptr) return own_device_->at(offset);
    return (tier == plan::Tier::kDevice ? device_ : host_).at(offset);
  }
  // Null where the CPU addresses the device's memory as its own.
  DeviceMemory* own_device() const { return own_device_.get(); }
  std::span<std::byte> all_of(plan::Tier tier) const { return {at(tier, 0), static_cast<size_t>(bytes(tier))}; }
  int64_t bytes(plan::Tier tier) const { return bytes_[static_cast<size_t>(tier)]; }
  bool has_disk() const { return disk_ != nullptr; }
  DiskStore::Channel& disk(DiskUser user) const { return disk_->channel(static_cast<int>(user)); }

 private:
  std::array<int64_t, 3> bytes_;
  std::unique_ptr<DeviceMemory> own_device_;
  Arena device_, host_;
  std::unique_ptr<DiskStore> disk_;
};

}  // namespace lazytrain::runtime
