// What the system says of this machine, for `doctor` and bug reports. Empty or -1 where it does not say.
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace lazytrain::hw {

struct MachineInfo {
  std::string cpu_model;
  std::set<std::string> cpu_flags;  // as /proc/cpuinfo spells them
  int cores_online = 0;
  int cores_allowed = 0;               // by the affinity of this process
  double cpu_quota = -1;               // cores' worth of time that the cgroup grants, -1: no limit
  int64_t memory_total = -1;           // bytes
  int64_t memory_available = -1;       // MemAvailable, bytes
  int64_t memory_limit = -1;           // the tightest cgroup limit of this process, bytes; -1: none
  int64_t memlock_limit = -1;          // RLIMIT_MEMLOCK, bytes; -1: none
  std::string transparent_huge_pages;  // always, madvise, never
  int64_t huge_pages = -1;             // reserved ones
};
MachineInfo machine_info();

}  // namespace lazytrain::hw
