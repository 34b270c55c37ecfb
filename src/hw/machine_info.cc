#include "hw/machine_info.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

namespace lazytrain::hw {
namespace {

// The text behind `key` and a colon in the first line of a file that begins with it.
std::string field(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

int64_t number(const std::string& text) {
  std::istringstream in(text);
  int64_t value = -1;
  return in >> value ? value : -1;
}

int64_t meminfo_bytes(const std::string& key) {
  const int64_t kilobytes = number(field("/proc/meminfo", key));
  return kilobytes < 0 ? -1 : kilobytes * 1024;
}

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// Folders of this process in the unified hierarchy, its own first; the root for one that sees only itself.
std::vector<std::string> cgroup_folders() {
  std::vector<std::string> folders;
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    for (std::string path = line.substr(3); !path.empty(); path.resize(path.rfind('/'))) {
      folders.push_back("/sys/fs/cgroup" + path);
      if (path.find('/') == std::string::npos) break;
    }
  }
  folders.emplace_back("/sys/fs/cgroup");
  return folders;
}

double cpu_quota() {
  double least = -1;
  for (const std::string& folder : cgroup_folders()) {
    std::istringstream in(first_line(folder + "/cpu.max"));  // "max 100000" or "150000 100000"
    double quota = 0, period = 0;
    if (in >> quota >> period && period > 0) least = least < 0 ? quota / period : std::min(least, quota / period);
  }
  return least;
}

int64_t memory_limit() {
  int64_t least = -1;
  for (const std::string& folder : cgroup_folders()) {
    const int64_t limit = number(first_line(folder + "/memory.max"));
    if (limit >= 0) least = least < 0 ? limit : std::min(least, limit);
  }
  return least;
}

// "always [madvise] never" -> "madvise"
std::string chosen(const std::string& line) {
  const size_t begin = line.find('['), end = line.find(']');
  return begin == std::string::npos || end == std::string::npos ? "" : line.substr(begin + 1, end - begin - 1);
}

}  // namespace

MachineInfo machine_info() {
  MachineInfo info;
  info.cpu_model = field("/proc/cpuinfo", "model name");
  std::istringstream flags(field("/proc/cpuinfo", "flags"));
  for (std::string flag; flags >> flag;) info.cpu_flags.insert(flag);
  info.cores_online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  CPU_ZERO(&set);
  info.cores_allowed = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : info.cores_online;
  info.cpu_quota = cpu_quota();
  info.memory_total = meminfo_bytes("MemTotal");
  info.memory_available = meminfo_bytes("MemAvailable");
  info.memory_limit = memory_limit();
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    info.memlock_limit = static_cast<int64_t>(limit.rlim_cur);
  }
  info.transparent_huge_pages = chosen(first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
  info.huge_pages = number(field("/proc/meminfo", "HugePages_Total"));
  return info;
}

}  // namespace lazytrain::hw
