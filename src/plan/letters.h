// The letters of the placement maps, and what they mean.
#pragma once

#include <optional>
#include <string_view>

#include "plan/words.h"

namespace lazytrain::plan {

inline constexpr std::string_view kHomeLegend = "D device, H host, N disk";
inline constexpr std::string_view kWeightsLegend =
    "s streamed, k kept on the device to backward, v at home there, t optimizer state on disk, n weights too";

constexpr char letter_of(const std::optional<Tier>& home) {
  if (!home) return '.';  // recomputed
  return *home == Tier::kDevice ? 'D' : *home == Tier::kHost ? 'H' : 'N';
}

// Of one unit's weights and the state that belongs to them.
constexpr char weights_letter(bool device_home, bool kept, bool weights_on_disk, bool state_on_disk) {
  if (device_home) return 'v';
  if (kept) return 'k';
  if (weights_on_disk) return 'n';
  return state_on_disk ? 't' : 's';
}

}  // namespace lazytrain::plan
