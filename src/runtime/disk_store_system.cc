#include "runtime/disk_store_system.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>

namespace lazytrain::runtime {

ssize_t DiskSystem::pread(int fd, std::span<std::byte> to, int64_t offset) {
  return ::pread(fd, to.data(), to.size(), offset);
}

ssize_t DiskSystem::pwrite(int fd, std::span<const std::byte> from, int64_t offset) {
  return ::pwrite(fd, from.data(), from.size(), offset);
}

// Not posix_fallocate: where the file system cannot, the C library would write a byte a block and call that room.
int DiskSystem::fallocate(int fd, int64_t bytes) { return ::fallocate(fd, 0, 0, bytes); }

int DiskSystem::sync_file_range(int fd, int64_t offset, int64_t bytes, unsigned flags) {
  return ::sync_file_range(fd, offset, bytes, flags);
}

int64_t DiskSystem::free_bytes(int fd) {
  struct statvfs stat {};
  if (::fstatvfs(fd, &stat) != 0) return -1;
  return static_cast<int64_t>(stat.f_bavail) * static_cast<int64_t>(stat.f_frsize);
}

int64_t DiskSystem::file_system(int fd) {
  struct statfs stat {};
  if (::fstatfs(fd, &stat) != 0) return -1;
  return static_cast<int64_t>(static_cast<uint32_t>(stat.f_type));  // some magic numbers have the sign bit
}

int64_t DiskSystem::direct_alignment(int fd) {
#ifdef STATX_DIOALIGN
  struct statx stat {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stat) == 0 && (stat.stx_mask & STATX_DIOALIGN) != 0) {
    return std::max<int64_t>(stat.stx_dio_mem_align, stat.stx_dio_offset_align);
  }
#else
  static_cast<void>(fd);
#endif
  return 4096;
}

int DiskSystem::setup_ring(unsigned entries, io_uring& ring) { return io_uring_queue_init(entries, &ring, 0); }

int DiskSystem::register_buffers(io_uring& ring, std::span<const iovec> buffers) {
  return io_uring_register_buffers(&ring, buffers.data(), static_cast<unsigned>(buffers.size()));
}

}  // namespace lazytrain::runtime
