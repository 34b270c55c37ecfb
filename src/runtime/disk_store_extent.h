// The extent file of a disk store: its room, what its file system can do, and what an answer of the system means.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "plan/program.h"
#include "runtime/disk_store_file.h"
#include "runtime/disk_store_system.h"

namespace lazytrain::runtime {

using plan::kDiskAlignment;  // of offsets, lengths and addresses, in bytes

class ExtentFile {
 public:
  enum class Place { kDisk, kMemory, kNetwork };

  // Checks the folder, removes stale extents, checks the room, creates the file and takes all of its `bytes`.
  // UsageError: the folder. Infeasible: less room than `bytes`. RunError: anything else that the system refuses.
  ExtentFile(int64_t bytes, const std::filesystem::path& folder, DiskSystem& system);

  int fd() const { return file_.fd(); }
  int64_t bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return file_.path(); }
  Place place() const { return place_; }
  DiskSystem& system() const { return system_; }

  // Direct I/O goes around the page cache. It is off at first; use_direct() tries it on the first block, and returns
  // why it stays off, or "" when it is on now.
  bool direct() const { return direct_; }
  std::string use_direct();

  // RunError when somebody cut the file: a write behind its end would extend it and leave a hole full of zeros.
  void check_size() const;

  // Takes `result` (bytes moved or a negative errno) as the answer to `request` and leaves in `request` what is still
  // to be moved; true when that is nothing. RunError names file, offset, length, and what to do.
  bool advance(DiskRequest& request, int64_t result) const;

  // For I/O through the page cache. start_writeback() sends what was written on its way; settle() waits until it is on
  // the disk (RunError when it cannot get there) and drops the pages.
  void start_writeback(int64_t offset, int64_t bytes) const;
  void settle(int64_t offset, int64_t bytes) const;
  void drop_pages(int64_t offset, int64_t bytes) const;

 private:
  void take_room(const std::filesystem::path& folder) const;
  void write_zeros(const std::filesystem::path& folder) const;
  int64_t size() const;
  [[noreturn]] void throw_failed(const DiskRequest& request, int error) const;
  [[noreturn]] void throw_truncated(const DiskRequest& request) const;
  void sync_range(int64_t offset, int64_t bytes, unsigned flags) const;

  int64_t bytes_;
  DiskSystem& system_;
  Place place_ = Place::kDisk;
  LockedFile file_;
  bool direct_ = false;
};

}  // namespace lazytrain::runtime
