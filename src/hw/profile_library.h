// The files of profiles/, built into the program.
#pragma once

#include <string_view>
#include <vector>

namespace lazytrain::hw {

struct EmbeddedProfile {
  std::string_view name;  // of the file, without .json
  std::string_view text;
};

// In the order of the names. Defined by a source that the build writes from profiles/*.json
// (cmake/embed_profiles.cmake).
std::vector<EmbeddedProfile> embedded_profiles();

}  // namespace lazytrain::hw
