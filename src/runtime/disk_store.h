// The disk tier: one preallocated extent file, which the disk lanes of a program read and write (docs/disk.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/disk_store_extent.h"
#include "runtime/disk_store_transport.h"

namespace lazytrain::runtime {

struct DiskOptions {
  std::filesystem::path folder;      // disk.path: where the extent lies
  bool verify = false;               // disk.verify: a checksum for each 4096 bytes written, held against what is read
  bool io_uring = true;              // false: pread and pwrite on a few threads
  bool direct = true;                // false: through the page cache
  int channels = 2;                  // lanes that use it at a time
  int depth = 8;                     // blocks on their way at a time, for each channel
  int64_t block = int64_t{1} << 20;  // bytes of a block, a multiple of kDiskAlignment up to 1 GiB
};

class DiskStore {
 public:
  class Channel;

  // Takes `bytes` (a multiple of kDiskAlignment) of disk now and finds now what the system refuses: io_uring, direct
  // I/O. Each refusal is a line in the log and the next best is used. UsageError: the folder (key disk.path) or the
  // options; Infeasible: less room than `bytes`; RunError: the disk fails. `system` is the operating system unless a
  // test says otherwise.
  DiskStore(int64_t bytes, const DiskOptions& options,
            std::unique_ptr<DiskSystem> system = std::make_unique<DiskSystem>());
  ~DiskStore();  // removes the file

  // Lane `index` of options.channels. Channels never wait for each other.
  Channel& channel(int index) { return *channels_.at(static_cast<size_t>(index)); }

  // Registers the memory that blocks will come from and go to (io_uring; pages become resident and count as locked,
  // once a channel). A refusal is a line in the log, and the memory is used without. Memory outside of it can be used
  // too. A second call replaces the first; no transfer may be under way. `memory` must outlive the store or a call with
  // {}.
  void register_memory(std::span<std::byte> memory);

  int64_t bytes() const { return file_.bytes(); }
  const std::filesystem::path& file() const { return file_.path(); }
  bool uses_io_uring() const { return uses_io_uring_; }
  bool is_direct() const { return file_.direct(); }
  bool is_registered() const { return is_registered_; }

  // The most host memory that a store of `bytes` holds: queues, threads and checksums. No block is copied.
  static int64_t bytes_needed(int64_t bytes, const DiskOptions& options);

 private:
  void open_channels();
  std::vector<std::unique_ptr<DiskTransport>> make_rings(std::string& why_not) const;

  DiskOptions options_;
  std::unique_ptr<DiskSystem> system_;
  ExtentFile file_;
  bool uses_io_uring_ = false;
  bool is_registered_ = false;
  std::vector<uint64_t> checksums_;  // one for each kDiskAlignment bytes, 0: never written; empty without verify
  std::vector<std::unique_ptr<Channel>> channels_;
};

// One lane's way to the extent. Any thread may call; calls on one channel take turns. Offsets, lengths and addresses
// are multiples of kDiskAlignment. Both return when every byte is moved. A region that is being written must not be
// read or written by another channel at the same time: the program's dependencies see to that.
class DiskStore::Channel {
 public:
  Channel(DiskStore& store, std::unique_ptr<DiskTransport> transport);

  // RunError: the disk fails, the file was cut, or (verify) the bytes are not those that were written.
  void read(int64_t offset, std::span<std::byte> to);
  void write(int64_t offset, std::span<const std::byte> from);

  // For DiskStore::register_memory: 0 or the errno of the refusal.
  int register_memory(std::span<std::byte> memory);

 private:
  void check(int64_t offset, const std::byte* memory, size_t bytes) const;
  void write_through_cache(const DiskRequest& request);

  DiskStore& store_;
  std::unique_ptr<DiskTransport> transport_;
  std::mutex mutex_;
};

}  // namespace lazytrain::runtime
