#include "hw/emulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/units.h"

namespace lazytrain::hw {
namespace {

// A copy reads and writes every byte, beside kernels and the other direction.
constexpr double kCopyShare = 0.25;

}  // namespace

Emulation emulate(const Profile& target, const Profile& here) {
  return emulate(target, here, {.time = target.gemm_flops / here.gemm_flops, .transfer = 1, .device = 1});
}

Emulation emulate(const Profile& target, const Profile& here, const Scaling& scaling) {
  if (target.one_memory) {
    throw UsageError("device.profile: {} has one memory, so there is nothing to emulate: train without the key",
                     target.name);
  }
  Emulation result{.machine = here, .scale = scaling.time};
  Profile& machine = result.machine;
  machine.name = fmt::format("{}, emulated", target.name);
  machine.one_memory = false;
  machine.sources.clear();
  const double rate = scaling.transfer / scaling.time;
  const Links& links = target.links;
  machine.links = {links.h2d * rate, links.d2h * rate, links.joint * rate, links.disk_read * rate,
                   links.disk_write * rate};
  machine.host_bandwidth = std::min(here.host_bandwidth, target.host_bandwidth * rate);
  const auto size = [](int64_t bytes, double by) { return static_cast<int64_t>(static_cast<double>(bytes) * by); };
  machine.device_bytes = size(target.device_bytes, scaling.device);
  machine.reserved_bytes = 0;
  machine.host_bytes = size(target.host_bytes, scaling.transfer);
  machine.disk_bytes = size(target.disk_bytes, scaling.transfer);
  const double most = kCopyShare * here.memory_bandwidth;
  for (const auto& [name, bytes] : {std::pair{"h2d", machine.links.h2d}, {"d2h", machine.links.d2h}}) {
    if (bytes <= most) continue;
    throw UsageError(
        "device.profile: {} would move {}/s over {} here, which copies at most {}/s beside its kernels: emulate a "
        "machine with slower links for its compute",
        target.name, format_bytes(static_cast<int64_t>(bytes)), name, format_bytes(static_cast<int64_t>(most)));
  }
  return result;
}

std::string describe(const Emulation& emulation, const std::string& target) {
  return fmt::format("1 s of {} = {:.3g} s here", target, emulation.scale);
}

}  // namespace lazytrain::hw
