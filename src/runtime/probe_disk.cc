#include "runtime/probe_disk.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>

#include "base/error.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "base/units.h"
#include "runtime/arena.h"

namespace lazytrain::runtime {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int64_t kBlock = int64_t{4} << 20;  // page aligned, as O_DIRECT wants
constexpr int kWorkers = 4;                   // blocks on their way at a time

// A file in `folder` that loses its name when it is opened.
class NamelessFile {
 public:
  explicit NamelessFile(const fs::path& folder) : where_(folder.string()) {
    std::string name = (folder / ".lazytrain-probe-XXXXXX").string();
    fd_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (fd_ < 0) fail("cannot create a file to measure the disk with");
    ::unlink(name.c_str());
    direct_ = ::fcntl(fd_, F_SETFL, O_DIRECT) == 0;
  }
  ~NamelessFile() { ::close(fd_); }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;

  bool direct() const { return direct_; }
  // Some file systems take the flag and refuse the first write.
  void leave_direct() {
    direct_ = false;
    if (::fcntl(fd_, F_SETFL, 0) != 0) fail("cannot leave direct I/O");
  }
  void reserve(int64_t bytes) const {
    const int error = ::posix_fallocate(fd_, 0, bytes);
    if (error != 0 && error != EOPNOTSUPP && error != EINVAL) {
      errno = error;
      fail("cannot reserve room to measure the disk with");
    }
  }
  void write_block(const std::byte* data, int64_t index) const {
    transfer(index, "cannot write", [&](int64_t done) {
      return ::pwrite(fd_, data + done, static_cast<size_t>(kBlock - done), index * kBlock + done);
    });
  }
  void read_block(std::byte* data, int64_t index) const {
    transfer(index, "cannot read back", [&](int64_t done) {
      return ::pread(fd_, data + done, static_cast<size_t>(kBlock - done), index * kBlock + done);
    });
  }
  void sync() const {
    if (::fdatasync(fd_) != 0) fail("cannot write");
  }
  void drop_cache(int64_t bytes) const { ::posix_fadvise(fd_, 0, bytes, POSIX_FADV_DONTNEED); }
  // True when direct I/O of a whole block works.
  bool try_block(const std::byte* data) const { return ::pwrite(fd_, data, kBlock, 0) == kBlock; }

 private:
  void transfer(int64_t index, const char* what, const std::function<ssize_t(int64_t)>& step) const {
    for (int64_t done = 0; done < kBlock;) {
      const ssize_t moved = step(done);
      if (moved < 0 && errno == EINTR) continue;
      if (moved < 0) fail(what);
      if (moved == 0) throw RunError("{}: {} block {} of the probe's file: it ends early", where_, what, index);
      done += moved;
    }
  }
  [[noreturn]] void fail(const char* what) const { throw RunError("{}: {}: {}", where_, what, std::strerror(errno)); }

  std::string where_;
  int fd_ = -1;
  bool direct_ = false;
};

struct Moved {
  int64_t blocks = 0;
  double rate = 0;
};

// Takes blocks [0, blocks) one after the other on all workers until `seconds` have passed, then `finish`.
Moved move_blocks(ThreadPool& pool, int64_t blocks, double seconds,
                  const std::function<void(int64_t worker, int64_t block)>& move, const std::function<void()>& finish) {
  std::atomic<int64_t> next{0};
  const auto begin = Clock::now();
  const auto passed = [begin] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  pool.run(kWorkers, [&](int64_t worker) {
    while (passed() < seconds) {
      const int64_t block = next++;
      if (block >= blocks) break;
      move(worker, block);
    }
  });
  finish();
  const int64_t moved = std::min<int64_t>(next, blocks);
  return {moved, static_cast<double>(moved * kBlock) / passed()};
}

}  // namespace

int64_t free_disk_bytes(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw UsageError("{}: no such folder to measure a disk in", folder.string());
  }
  struct statvfs stat {};
  if (::statvfs(folder.c_str(), &stat) != 0) {
    throw RunError("{}: cannot ask for its free room: {}", folder.string(), std::strerror(errno));
  }
  return static_cast<int64_t>(stat.f_bavail) * static_cast<int64_t>(stat.f_frsize);
}

bool lies_in_memory(const fs::path& folder) {
  struct statfs stat {};
  if (::statfs(folder.c_str(), &stat) != 0) return false;
  const auto type = static_cast<uint32_t>(stat.f_type);  // some magic numbers have the sign bit
  return type == TMPFS_MAGIC || type == RAMFS_MAGIC;
}

DiskRates measure_disk(const fs::path& folder, int64_t bytes, double seconds) {
  DiskRates rates;
  rates.free_bytes = free_disk_bytes(folder);
  const int64_t blocks = std::max<int64_t>(kWorkers, bytes / kBlock);
  if (rates.free_bytes < 2 * blocks * kBlock) {
    throw UsageError(
        "{}: measuring the disk wants twice {} of free room and there are {}: name another folder with "
        "--disk",
        folder.string(), format_bytes(blocks * kBlock), format_bytes(rates.free_bytes));
  }
  const Arena buffers(kWorkers * kBlock, "the probe of the disk");
  const CounterRng rng(1, 0);  // data that no disk can compress
  auto* words = reinterpret_cast<double*>(buffers.at(0));
  for (int64_t i = 0; i < buffers.bytes() / 8; ++i) words[i] = rng.uniform(static_cast<uint64_t>(i));

  NamelessFile file(folder);
  file.reserve(blocks * kBlock);
  if (file.direct() && !file.try_block(buffers.at(0))) file.leave_direct();
  if (!file.direct()) {
    spdlog::warn("{}: its file system has no direct I/O: the disk is measured through the page cache", folder.string());
  }
  rates.direct = file.direct();
  ThreadPool pool(kWorkers);
  const Moved written = move_blocks(
      pool, blocks, seconds, [&](int64_t w, int64_t block) { file.write_block(buffers.at(w * kBlock), block); },
      [&] { file.sync(); });
  if (!file.direct()) file.drop_cache(blocks * kBlock);
  const Moved read = move_blocks(
      pool, written.blocks, seconds, [&](int64_t w, int64_t block) { file.read_block(buffers.at(w * kBlock), block); },
      [] {});
  rates.write = written.rate;
  rates.read = read.rate;
  return rates;
}

}  // namespace lazytrain::runtime
