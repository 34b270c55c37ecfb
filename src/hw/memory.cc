#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "hw/profile.h"

namespace lazytrain::hw {
namespace {

// The number of kB behind `key` in a file of /proc, or -1.
int64_t proc_kilobytes(const char* file, const std::string& key) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind(key, 0) != 0) continue;
    std::istringstream fields(line.substr(key.size()));
    int64_t kilobytes = -1;
    fields >> kilobytes;
    return kilobytes;
  }
  return -1;
}

// A cgroup file holds a number or "max"; -1 when there is no such file or no limit.
int64_t cgroup_number(const std::string& path) {
  std::ifstream in(path);
  int64_t value = -1;
  return in >> value ? value : -1;
}

// What is left below a limit, or no limit at all.
int64_t headroom(const std::string& limit_file, const std::string& usage_file) {
  const int64_t limit = cgroup_number(limit_file);
  const int64_t usage = cgroup_number(usage_file);
  if (limit < 0 || usage < 0) return std::numeric_limits<int64_t>::max();
  return std::max<int64_t>(0, limit - usage);
}

// The folder of this process in the unified hierarchy ("0::/path"), or in the v1 memory hierarchy.
std::string cgroup_path(bool unified) {
  std::ifstream in("/proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (unified ? controllers.empty() : controllers == "memory") return line.substr(second + 1);
  }
  return "";
}

}  // namespace

int64_t available_memory() {
  int64_t available = std::numeric_limits<int64_t>::max();
  if (const int64_t kilobytes = proc_kilobytes("/proc/meminfo", "MemAvailable:"); kilobytes >= 0) {
    available = kilobytes * 1024;
  }
  // Every folder up to the root can hold a limit. Inside a container the path may not exist: then the root is ours.
  for (std::string path = cgroup_path(true); !path.empty(); path.resize(path.rfind('/') == 0 ? 0 : path.rfind('/'))) {
    const std::string folder = "/sys/fs/cgroup" + path;
    available = std::min(available, headroom(folder + "/memory.max", folder + "/memory.current"));
  }
  available = std::min(available, headroom("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"));
  const std::string v1 = "/sys/fs/cgroup/memory";
  for (const std::string& folder : {v1 + cgroup_path(false), v1}) {
    available = std::min(available, headroom(folder + "/memory.limit_in_bytes", folder + "/memory.usage_in_bytes"));
  }
  return available;
}

int64_t peak_resident_bytes() {
  const int64_t kilobytes = proc_kilobytes("/proc/self/status", "VmHWM:");
  return kilobytes < 0 ? 0 : kilobytes * 1024;
}

}  // namespace lazytrain::hw
