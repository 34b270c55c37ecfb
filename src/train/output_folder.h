// The folder of a run: one process at a time, and nothing left in it of a run that was refused.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "train/run_config.h"

namespace lazytrain::train {

// Holds FOLDER/.lock; the kernel lets go of it when the process ends, however it ends.
class RunLock {
 public:
  // Throws UsageError when another process holds it. A file system without locks is a warning.
  explicit RunLock(const std::filesystem::path& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int fd_ = -1;
};

// Throws UsageError when the run could not write into `output`: it is a file, a folder without write permission or in
// one, or the model's own. Touches nothing.
void check_output(const RunConfig& config);

// Throws UsageError when an earlier run is there, which a fresh one must not overwrite.
void require_fresh(const std::filesystem::path& output);

class OutputFolder {
 public:
  // Makes the folder and takes its lock. Throws UsageError.
  explicit OutputFolder(const RunConfig& config);
  // Unless kept, takes away what this process has made: the folder with its parents, the lock, the cache.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  void keep() { kept_ = true; }

 private:
  std::filesystem::path folder_;
  std::filesystem::path cache_;                 // empty: not within the folder
  std::vector<std::filesystem::path> missing_;  // folders that were not there, innermost first
  bool lock_was_there_ = false;
  std::optional<RunLock> lock_;
  bool kept_ = false;
};

}  // namespace lazytrain::train
