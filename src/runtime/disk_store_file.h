// The name and the lock of an extent file: one of a process that was killed is told from one that is in use.
#pragma once

#include <filesystem>

namespace lazytrain::runtime {

// A new file that keeps its name as long as this lives, with an advisory lock (flock) on it.
class LockedFile {
 public:
  // FOLDER/lazytrain-PID-RANDOM.extent, empty. UsageError (key disk.path) when the folder takes no file.
  explicit LockedFile(const std::filesystem::path& folder);
  ~LockedFile();
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

  int fd() const { return fd_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  bool lock();
  void give_up();

  std::filesystem::path path_;
  int fd_ = -1;
};

// Removes the extents in `folder` whose lock is free (their process is gone), with a line each; returns how many.
int remove_stale_extents(const std::filesystem::path& folder);

}  // namespace lazytrain::runtime
