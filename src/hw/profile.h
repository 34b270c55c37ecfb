// What the planner knows of a machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/json.h"

namespace lazytrain::hw {

// Rates in bytes a second, 0 where there is no such link.
struct Links {
  double h2d = 0;
  double d2h = 0;
  double joint = 0;  // both directions at once, summed
  double disk_read = 0;
  double disk_write = 0;
};

struct Profile {
  std::string name;
  bool one_memory = false;      // device and host are the same memory: nothing is copied between them
  double gemm_flops = 0;        // sustained, at training shapes
  double memory_bandwidth = 0;  // device memory, bytes a second, for row ops
  double host_bandwidth = 0;    // what the host optimizer streams, bytes a second
  double launch_s = 0;          // overhead of one compute instruction
  Links links;
  int64_t device_bytes = 0;
  int64_t host_bytes = 0;
};

Json to_json(const Profile& profile);
Profile profile_from_json(const Json& json, const std::string& where);

// Memory this process may still take: the least of MemAvailable and the cgroup limits (v1 and v2).
int64_t available_memory();
// Peak resident set of this process so far (VmHWM), bytes.
int64_t peak_resident_bytes();

}  // namespace lazytrain::hw
