#include "runtime/disk_store_extent.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/units.h"

namespace lazytrain::runtime {
namespace {

namespace fs = std::filesystem;

constexpr int kPatience = 200;  // answers in a row that move nothing, before that is an error: about a second
constexpr int64_t kZeroBlock = 1 << 20;

// File systems whose disk is another machine. Those that linux/magic.h does not know have their number from their
// source.
constexpr std::array<int64_t, 9> kNetworkFileSystems = {
    NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, SMB2_SUPER_MAGIC, CIFS_SUPER_MAGIC, CEPH_SUPER_MAGIC, V9FS_MAGIC, AFS_SUPER_MAGIC,
    0x0BD00BD0,   // Lustre
    0x47504653};  // GPFS

ExtentFile::Place place_of(int64_t file_system) {
  if (file_system == TMPFS_MAGIC || file_system == RAMFS_MAGIC) return ExtentFile::Place::kMemory;
  const bool network =
      std::find(kNetworkFileSystems.begin(), kNetworkFileSystems.end(), file_system) != kNetworkFileSystems.end();
  return network ? ExtentFile::Place::kNetwork : ExtentFile::Place::kDisk;
}

[[noreturn]] void throw_no_room(int64_t bytes, int64_t free, const fs::path& folder, const std::string& why) {
  throw Infeasible(
      "disk: {} needed in {}, {} free, {} short{}. Any of: disk.path in a place with {}; less on disk with a larger "
      "host.memory; a smaller batch or seq when it holds activations; fewer files there.",
      format_bytes(bytes), folder.string(), format_bytes(free), format_bytes(std::max<int64_t>(bytes - free, 0)), why,
      format_bytes(bytes));
}

// A folder that is open for questions to its file system.
class OpenFolder {
 public:
  explicit OpenFolder(const fs::path& folder) : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (fd_ >= 0) return;
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) {
      std::error_code ignored;
      const bool is_there = fs::exists(folder, ignored);
      throw UsageError("disk.path: {} {}", folder.string(),
                       is_there ? "is no folder: name a folder on a local disk" : "does not exist: create it first");
    }
    throw UsageError("disk.path: cannot open {}: {}. Name a folder that this user may read and write", folder.string(),
                     std::strerror(error));
  }
  ~OpenFolder() { ::close(fd_); }
  OpenFolder(const OpenFolder&) = delete;
  OpenFolder& operator=(const OpenFolder&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Refuses a folder before anything is created in it.
const fs::path& prepare_folder(const fs::path& folder, int64_t bytes, DiskSystem& system, ExtentFile::Place& place) {
  if (folder.empty())
    throw UsageError("disk.path: the plan keeps {} on disk and no folder is named", format_bytes(bytes));
  const OpenFolder open(folder);
  place = place_of(system.file_system(open.fd()));
  // Locks may be those of one machine only there: another machine's extent could look as if nobody had it.
  if (place != ExtentFile::Place::kNetwork) remove_stale_extents(folder);
  const int64_t free = system.free_bytes(open.fd());
  if (free < 0) throw RunError("disk.path: cannot ask {} for its room: {}", folder.string(), std::strerror(errno));
  if (free < bytes) throw_no_room(bytes, free, folder, "");
  struct rlimit limit {};  // asked first: growing past it sends a signal that ends the process
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(bytes)) {
    throw_no_room(bytes, static_cast<int64_t>(limit.rlim_cur), folder, " (the limit of a file's size, ulimit -f)");
  }
  return folder;
}

// Memory for a block of direct I/O.
struct alignas(kDiskAlignment) AlignedBlock {
  std::array<std::byte, kDiskAlignment> bytes{};
};

bool is_full(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

}  // namespace

ExtentFile::ExtentFile(int64_t bytes, const fs::path& folder, DiskSystem& system)
    : bytes_(bytes), system_(system), file_(prepare_folder(folder, bytes, system, place_)) {
  take_room(folder);
  struct stat stat {};
  if (::fstat(fd(), &stat) == 0 && static_cast<int64_t>(stat.st_blocks) * 512 < bytes_) {
    spdlog::warn("{}: its file system gave {} of {}: it compresses or stores holes, so the disk can fill up midway",
                 path().string(), format_bytes(static_cast<int64_t>(stat.st_blocks) * 512), format_bytes(bytes_));
  }
}

void ExtentFile::take_room(const fs::path& folder) const {
  int result;
  do {
    result = system_.fallocate(fd(), bytes_);
  } while (result != 0 && errno == EINTR);
  if (result == 0) return;
  const int error = errno;
  if (is_full(error))
    throw_no_room(bytes_, system_.free_bytes(fd()), folder, fmt::format(" ({})", std::strerror(error)));
  if (error != EOPNOTSUPP && error != ENOSYS && error != EINVAL) {
    throw RunError("{}: cannot take {} of disk: {}", path().string(), format_bytes(bytes_), std::strerror(error));
  }
  spdlog::warn("{}: its file system cannot reserve room: writing {} of zeros instead", path().string(),
               format_bytes(bytes_));
  write_zeros(folder);
}

void ExtentFile::write_zeros(const fs::path& folder) const {
  const std::vector<std::byte> zeros(static_cast<size_t>(std::min(bytes_, kZeroBlock)));
  for (int64_t offset = 0; offset < bytes_; offset += kZeroBlock) {
    DiskRequest request{.offset = offset, .length = std::min(kZeroBlock, bytes_ - offset), .from = zeros.data()};
    for (bool done = false; !done;) {
      const ssize_t moved = system_.pwrite(fd(), {request.from, static_cast<size_t>(request.length)}, request.offset);
      if (moved < 0 && is_full(errno)) {
        throw_no_room(bytes_, request.offset, folder, fmt::format(" ({})", std::strerror(errno)));
      }
      done = advance(request, moved < 0 ? -errno : moved);
    }
    settle(offset, std::min(kZeroBlock, bytes_ - offset));
  }
}

std::string ExtentFile::use_direct() {
  const int64_t alignment = system_.direct_alignment(fd());
  if (alignment == 0) return "its file system has none";
  if (alignment > kDiskAlignment) return fmt::format("its file system wants it aligned to {} bytes", alignment);
  if (::fcntl(fd(), F_SETFL, O_DIRECT) != 0) return std::strerror(errno);
  direct_ = true;
  AlignedBlock block;  // some file systems take the flag and refuse the first block
  for (const bool reads : {false, true}) {
    DiskRequest request{.length = kDiskAlignment,
                        .to = reads ? block.bytes.data() : nullptr,
                        .from = reads ? nullptr : block.bytes.data()};
    for (bool done = false; !done;) {
      const size_t left = static_cast<size_t>(request.length);
      const ssize_t moved = reads ? system_.pread(fd(), {request.to, left}, request.offset)
                                  : system_.pwrite(fd(), {request.from, left}, request.offset);
      if (moved < 0 && (errno == EINVAL || errno == EOPNOTSUPP)) {
        const std::string why = std::strerror(errno);
        direct_ = false;
        if (::fcntl(fd(), F_SETFL, 0) != 0) throw RunError("{}: {}", path().string(), std::strerror(errno));
        return why;
      }
      done = advance(request, moved < 0 ? -errno : moved);
    }
  }
  return "";
}

int64_t ExtentFile::size() const {
  struct stat stat {};
  return ::fstat(fd(), &stat) == 0 ? static_cast<int64_t>(stat.st_size) : -1;
}

void ExtentFile::check_size() const {
  const int64_t now = size();
  if (now >= bytes_) return;
  throw RunError(
      "{}: truncated extent: {} bytes of {} are left, another program cut it. Keep others out of disk.path and go on "
      "from the last checkpoint with --resume",
      path().string(), now, bytes_);
}

bool ExtentFile::advance(DiskRequest& request, int64_t result) const {
  if (result < 0 && result != -EINTR && result != -EAGAIN) throw_failed(request, static_cast<int>(-result));
  int64_t moved = std::max<int64_t>(result, 0);
  if (moved > request.length) {
    throw RunError("{}: the system says that it moved {} of {} bytes at offset {}", path().string(), moved,
                   request.length, request.offset);
  }
  if (direct_ && moved < request.length) moved -= moved % kDiskAlignment;  // what follows must be aligned too
  if (moved > 0) {
    const int64_t left = request.length - moved;
    request = request.part(moved, left);
    return left == 0;
  }
  if (result >= 0 && request.reads() && size() < bytes_) throw_truncated(request);
  if (++request.stalls > kPatience) throw_failed(request, result < 0 ? static_cast<int>(-result) : EIO);
  if (request.stalls > 4) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return false;
}

void ExtentFile::throw_truncated(const DiskRequest& request) const {
  throw RunError(
      "{}: truncated extent: nothing at offset {} ({} bytes wanted), the file has {} bytes of {}; another program cut "
      "it. "
      "Keep others out of disk.path and go on from the last checkpoint with --resume",
      path().string(), request.offset, request.length, size(), bytes_);
}

void ExtentFile::throw_failed(const DiskRequest& request, int error) const {
  const char* remedy = is_full(error)
                           ? "Free some room there or set disk.path to another disk"
                           : "The disk may be failing or gone (dmesg says more): set disk.path to another one";
  throw RunError("{}: cannot {} {} bytes at offset {}: {}. {}, and go on from the last checkpoint with --resume",
                 path().string(), request.reads() ? "read" : "write", request.length, request.offset,
                 std::strerror(error), remedy);
}

void ExtentFile::sync_range(int64_t offset, int64_t bytes, unsigned flags) const {
  int result;
  do {
    result = system_.sync_file_range(fd(), offset, bytes, flags);
  } while (result != 0 && errno == EINTR);
  // A system without the call: all of the file instead, where that is waited for.
  if (result != 0 && (errno == ENOSYS || errno == EINVAL || errno == EOPNOTSUPP || errno == ESPIPE)) {
    result = (flags & SYNC_FILE_RANGE_WAIT_AFTER) != 0 ? ::fdatasync(fd()) : 0;
  }
  static constexpr std::byte kWrite{};
  if (result != 0) throw_failed({.offset = offset, .length = bytes, .from = &kWrite}, errno);
}

void ExtentFile::start_writeback(int64_t offset, int64_t bytes) const {
  if (place_ != Place::kMemory) sync_range(offset, bytes, SYNC_FILE_RANGE_WRITE);
}

void ExtentFile::settle(int64_t offset, int64_t bytes) const {
  if (place_ == Place::kMemory) return;
  sync_range(offset, bytes, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  drop_pages(offset, bytes);
}

void ExtentFile::drop_pages(int64_t offset, int64_t bytes) const {
  if (place_ != Place::kMemory) ::posix_fadvise(fd(), offset, bytes, POSIX_FADV_DONTNEED);
}

}  // namespace lazytrain::runtime
