#include "runtime/disk_store_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/units.h"

namespace lazytrain::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "lazytrain-";
constexpr std::string_view kSuffix = ".extent";

std::string new_name() {
  std::random_device random;
  const uint64_t number = (uint64_t{random()} << 32) | random();
  return fmt::format("{}{}-{:016x}{}", kPrefix, ::getpid(), number, kSuffix);
}

// PREFIX, digits, '-', 16 hex digits, SUFFIX: nothing that another program made is taken for ours.
bool is_extent_name(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return false;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(std::min(name.size(), kSuffix.size()));
  const size_t dash = name.find('-');
  return dash != std::string_view::npos && dash > 0 && name.size() == dash + 17 &&
         name.find_first_not_of("0123456789") == dash &&
         name.find_first_not_of("0123456789abcdef", dash + 1) == std::string_view::npos;
}

// Whether `path` still names the file behind `fd`: between open and flock another process may have removed it.
bool names(const fs::path& path, int fd) {
  struct stat open_file {};
  struct stat named {};
  return ::fstat(fd, &open_file) == 0 && ::lstat(path.c_str(), &named) == 0 && open_file.st_dev == named.st_dev &&
         open_file.st_ino == named.st_ino;
}

bool try_lock(int fd) {
  int result;
  do {
    result = ::flock(fd, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

// The number in an extent's name. A process of another container may have it too: it tells how long to wait, not more.
bool owner_lives(const fs::path& path) {
  const std::string name = path.filename().string();
  const int64_t pid = std::strtoll(name.c_str() + kPrefix.size(), nullptr, 10);
  return pid <= 0 || pid > INT32_MAX || ::kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH;
}

// As try_lock; but the kernel takes io_uring of a killed process down behind its end, and that holds the lock as long.
bool lock_of_the_dead(const fs::path& path, int fd, std::chrono::steady_clock::time_point until) {
  while (!try_lock(fd)) {
    if (errno != EWOULDBLOCK || std::chrono::steady_clock::now() >= until || owner_lives(path)) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

bool remove_if_stale(const fs::path& path, std::chrono::steady_clock::time_point until) {
  // Not through links, and without waiting for what is no file. For writing: NFS locks nothing that is open to read
  // only.
  const int fd = ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat stat {};
  bool removed = false;
  if (::fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) && lock_of_the_dead(path, fd, until) && names(path, fd)) {
    removed = ::unlink(path.c_str()) == 0;
    if (removed) {
      spdlog::info("removed {}, {} that a killed run left behind", path.string(),
                   format_bytes(static_cast<int64_t>(stat.st_blocks) * 512));
    } else {
      spdlog::warn("{} is left behind by a killed run and cannot be removed: {}", path.string(), std::strerror(errno));
    }
  }
  ::close(fd);
  return removed;
}

}  // namespace

LockedFile::LockedFile(const fs::path& folder) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    path_ = folder / new_name();
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd_ < 0 && (errno == EINTR || errno == EEXIST)) continue;
    if (fd_ < 0 && (errno == EROFS || errno == EACCES || errno == EPERM)) {
      throw UsageError("disk.path: no file can be written in {}: {}. Name a folder that this user may write to",
                       folder.string(), std::strerror(errno));
    }
    if (fd_ < 0) throw RunError("disk.path: cannot create a file in {}: {}", folder.string(), std::strerror(errno));
    if (lock()) return;
    give_up();
  }
  throw RunError("disk.path: no file in {} stays ours: another program removes or locks each one", folder.string());
}

// False when a process that cleans the folder had the file before us.
bool LockedFile::lock() {
  if (try_lock(fd_)) return names(path_, fd_);
  if (errno == EWOULDBLOCK) return false;
  spdlog::warn("{}: its file system has no locks ({}): if this run is killed, remove the file by hand", path_.string(),
               std::strerror(errno));
  return true;
}

void LockedFile::give_up() {
  if (fd_ < 0) return;
  if (names(path_, fd_)) ::unlink(path_.c_str());  // before close: nobody else can hold the lock now
  // Whoever still holds the file (a ring that is being taken down) holds no room.
  if (::ftruncate(fd_, 0) != 0) spdlog::debug("{}: {}", path_.string(), std::strerror(errno));
  ::close(fd_);
  fd_ = -1;
}

LockedFile::~LockedFile() { give_up(); }

int remove_stale_extents(const fs::path& folder) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(3);  // for all of them
  int removed = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (is_extent_name(it->path().filename().string()) && remove_if_stale(it->path(), until)) ++removed;
  }
  return removed;
}

}  // namespace lazytrain::runtime
