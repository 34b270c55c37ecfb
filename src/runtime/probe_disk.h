// Rates of a disk, as the program would use it: large blocks of a preallocated file, around the page cache.
#pragma once

#include <cstdint>
#include <filesystem>

namespace lazytrain::runtime {

struct DiskRates {
  double read = 0;         // bytes a second
  double write = 0;        // bytes a second, on the medium
  int64_t free_bytes = 0;  // that this process may still take
  bool direct = false;     // O_DIRECT; else through the page cache, synced and dropped
};

// Bytes that `folder`'s file system grants this process. UsageError when there is no such folder.
int64_t free_disk_bytes(const std::filesystem::path& folder);

// Whether what is written to `folder` stays in memory (tmpfs, ramfs).
bool lies_in_memory(const std::filesystem::path& folder);

// Writes and reads a file of at most `bytes` in `folder` for at most `seconds` each. The file has no name from the
// moment it is open: nothing is left, however the program ends. UsageError when there is no such folder or no room,
// RunError when the system refuses.
DiskRates measure_disk(const std::filesystem::path& folder, int64_t bytes, double seconds);
inline constexpr int64_t kDiskProbeBytes = int64_t{1} << 30;
inline constexpr double kDiskProbeSeconds = 3;

}  // namespace lazytrain::runtime
