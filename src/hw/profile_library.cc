#include "hw/profile_library.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "hw/profile.h"

namespace lazytrain::hw {
namespace {

constexpr int64_t kMaxProfileBytes = 1 << 20;

Profile parsed(const EmbeddedProfile& file) {
  const std::string where = fmt::format("profile {}", file.name);
  return profile_from_json(parse_json(file.text, where), where);
}

}  // namespace

std::vector<Profile> library_profiles() {
  std::vector<Profile> profiles;
  for (const EmbeddedProfile& file : embedded_profiles()) profiles.push_back(parsed(file));
  return profiles;
}

Profile find_profile(const std::string& name_or_file) {
  std::vector<std::string> names;
  for (const EmbeddedProfile& file : embedded_profiles()) {
    if (file.name == name_or_file) return parsed(file);
    names.emplace_back(file.name);
  }
  std::error_code error;
  if (std::filesystem::is_regular_file(name_or_file, error)) {
    return profile_from_json(read_json(name_or_file, kMaxProfileBytes), name_or_file);
  }
  const std::string near = nearest(name_or_file, names);
  throw UsageError(
      "profile '{}' is neither a known machine nor a file{}. Known are {}; `this` is the machine at hand, and "
      "`lazytrain profile --out FILE` measures it into a file.",
      shown(name_or_file), near.empty() ? "" : fmt::format("; the nearest is '{}'", near), fmt::join(names, ", "));
}

}  // namespace lazytrain::hw
