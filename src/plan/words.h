// The words of the planner (DESIGN: words), with the names under which they stand in JSON, tables and traces.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lazytrain::plan {

enum class Tier : uint8_t { kDevice, kHost, kDisk };
inline constexpr std::array<std::string_view, 3> kTierNames = {"device", "host", "disk"};

enum class Lane : uint8_t { kCompute, kH2D, kD2H, kHost, kDiskRead, kDiskWrite };
inline constexpr std::array<std::string_view, 6> kLaneNames = {"compute", "h2d",       "d2h",
                                                               "host",    "disk_read", "disk_write"};
inline constexpr int kLanes = 6;

// kCopyIn brings weights to where kernels read them. The others move a buffer by one tier: kCopyOut to the host,
// kFetch back to the device, kDiskWrite and kDiskRead between host and disk.
enum class Action : uint8_t { kCopyIn, kCompute, kAccumulate, kUpdate, kCopyOut, kFetch, kDiskRead, kDiskWrite };
inline constexpr std::array<std::string_view, 8> kActionNames = {"copy_in",  "compute", "accumulate", "update",
                                                                 "copy_out", "fetch",   "disk_read",  "disk_write"};

// kBlockRecompute runs a unit forward again to get the boundary behind it; kRecompute regenerates what its backward
// reads.
enum class Pass : uint8_t { kForward, kBlockRecompute, kRecompute, kBackward, kLoss };
inline constexpr std::array<std::string_view, 5> kPassNames = {"forward", "block_recompute", "recompute", "backward",
                                                               "loss"};

// What a buffer is for: the rows of the memory table.
enum class Purpose : uint8_t {
  kWeights,
  kOptimizer,
  kGradients,
  kStreamedWeights,
  kGradientAccumulators,
  kBoundaries,
  kBoundaryGradients,
  kRetained,
  kWorkspace,
  kScratch,
  kStaged
};
inline constexpr std::array<std::string_view, 11> kPurposeNames = {"weights",
                                                                   "optimizer state",
                                                                   "gradients",
                                                                   "streamed weights",
                                                                   "gradient accumulators",
                                                                   "boundaries",
                                                                   "boundary gradients",
                                                                   "retained",
                                                                   "workspace",
                                                                   "kernel scratch",
                                                                   "state on its way to or from disk"};

template <typename Enum, size_t N>
constexpr std::string_view name_in(const std::array<std::string_view, N>& names, Enum value) {
  return names[static_cast<size_t>(value)];
}
constexpr std::string_view name_of(Tier t) { return name_in(kTierNames, t); }
constexpr std::string_view name_of(Lane l) { return name_in(kLaneNames, l); }
constexpr std::string_view name_of(Action a) { return name_in(kActionNames, a); }
constexpr std::string_view name_of(Pass p) { return name_in(kPassNames, p); }
constexpr std::string_view name_of(Purpose p) { return name_in(kPurposeNames, p); }

}  // namespace lazytrain::plan
