// What the disk store asks of the operating system, in one place, so that a test can answer otherwise.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

struct io_uring;

namespace lazytrain::runtime {

// Bytes [offset, offset + length) of the extent on their way from or to memory: one of `to` and `from` is set.
struct DiskRequest {
  int64_t offset = 0;
  int64_t length = 0;
  std::byte* to = nullptr;          // a read
  const std::byte* from = nullptr;  // a write
  int stalls = 0;                   // answers in a row that moved nothing

  bool reads() const { return to != nullptr; }
  // The part of `bytes` bytes that begins `skip` bytes into it.
  DiskRequest part(int64_t skip, int64_t bytes) const {
    return {offset + skip, bytes, reads() ? to + skip : nullptr, reads() ? nullptr : from + skip, 0};
  }
};

// The system itself. Called by several threads at a time.
class DiskSystem {
 public:
  virtual ~DiskSystem() = default;

  // As the calls of these names: -1 and errno when they fail.
  virtual ssize_t pread(int fd, std::span<std::byte> to, int64_t offset);
  virtual ssize_t pwrite(int fd, std::span<const std::byte> from, int64_t offset);
  virtual int fallocate(int fd, int64_t bytes);
  virtual int sync_file_range(int fd, int64_t offset, int64_t bytes, unsigned flags);

  virtual int64_t free_bytes(int fd);   // that this user may take on the file system of `fd`; -1 and errno
  virtual int64_t file_system(int fd);  // the magic number of statfs(2); -1 and errno
  // What direct I/O on `fd` wants of offsets, lengths and addresses; 0: there is none; 4096 when the system cannot say.
  virtual int64_t direct_alignment(int fd);

  // io_uring: 0 or a negative errno.
  virtual int setup_ring(unsigned entries, io_uring& ring);
  virtual int register_buffers(io_uring& ring, std::span<const iovec> buffers);
  // Bytes of a request to submit, and what its completion says: bytes moved or a negative errno.
  virtual int64_t submitted(const DiskRequest& request) { return request.length; }
  virtual int64_t completed(const DiskRequest&, int64_t result) { return result; }
};

}  // namespace lazytrain::runtime
