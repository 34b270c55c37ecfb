#include "train/output_folder.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "train/checkpoint.h"

namespace lazytrain::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = ".lock";

// `folder` and those above it that do not exist, innermost first.
std::vector<fs::path> missing_folders(const fs::path& folder) {
  std::vector<fs::path> missing;
  std::error_code ignored;
  fs::path at = fs::absolute(folder).lexically_normal();
  if (!at.has_filename()) at = at.parent_path();  // "run/"
  while (!fs::exists(at, ignored) && at != at.parent_path()) {
    missing.push_back(at);
    at = at.parent_path();
  }
  return missing;
}

}  // namespace

RunLock::RunLock(const fs::path& folder) {
  const fs::path path = folder / kLock;
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) throw UsageError("output: {} cannot be written: {}", path.string(), std::strerror(errno));
  while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) {
      ::close(fd_);
      throw UsageError("output: another process trains into {}: wait until it has ended, or name another folder",
                       folder.string());
    }
    spdlog::warn("{}: this file system has no locks ({}): nothing keeps a second process out of this run",
                 path.string(), std::strerror(errno));
    break;
  }
}

RunLock::~RunLock() { ::close(fd_); }

void check_output(const RunConfig& config) {
  const fs::path& output = config.output;
  std::error_code ignored;
  if (fs::equivalent(output, config.model, ignored)) {
    throw UsageError("output: {} is the folder of `model`: name another one for the run", output.string());
  }
  const std::vector<fs::path> missing = missing_folders(output);
  const fs::path there = missing.empty() ? output : missing.back().parent_path();
  if (!fs::is_directory(there, ignored)) {
    throw UsageError("output: {} cannot be made: {} is a file: name another folder", output.string(), there.string());
  }
  if (::access(there.c_str(), W_OK | X_OK) != 0) {
    throw UsageError("output: {} cannot be written: {}: {}: name another folder", output.string(), there.string(),
                     std::strerror(errno));
  }
}

void require_fresh(const fs::path& output) {
  if (CheckpointFolder(output / "checkpoints").any() || fs::exists(output / "model")) {
    throw UsageError("output: {} holds a run already: add --resume to go on with it, or name another folder",
                     output.string());
  }
}

OutputFolder::OutputFolder(const RunConfig& config) : folder_(config.output), missing_(missing_folders(folder_)) {
  if (config.data.cache == folder_ / "cache" && !fs::exists(config.data.cache)) cache_ = config.data.cache;
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    throw UsageError("output: {} cannot be made: {}: name a folder that can be written", folder_.string(),
                     error.message());
  }
  lock_was_there_ = fs::exists(folder_ / kLock);
  lock_.emplace(folder_);
}

OutputFolder::~OutputFolder() {
  if (kept_) return;
  std::error_code ignored;
  if (!lock_was_there_) fs::remove(folder_ / kLock, ignored);
  if (!cache_.empty()) fs::remove_all(cache_, ignored);
  for (const fs::path& folder : missing_) fs::remove(folder, ignored);  // only those that are empty again
}

}  // namespace lazytrain::train
