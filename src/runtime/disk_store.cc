#include "runtime/disk_store.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/units.h"

namespace lazytrain::runtime {
namespace {

constexpr int kMaxDepth = 1024;
constexpr int64_t kMaxBlock = int64_t{1} << 30;

const DiskOptions& checked(const DiskOptions& options, int64_t bytes) {
  if (bytes <= 0 || bytes % kDiskAlignment != 0) {
    throw UsageError("disk: an extent of {} bytes, expected a positive multiple of {}", bytes, kDiskAlignment);
  }
  if (options.block < kDiskAlignment || options.block > kMaxBlock || options.block % kDiskAlignment != 0) {
    throw UsageError("disk: blocks of {} bytes, expected a multiple of {} up to {}", options.block, kDiskAlignment,
                     kMaxBlock);
  }
  if (options.depth < 1 || options.depth > kMaxDepth) {
    throw UsageError("disk: {} blocks at a time, expected 1 to {}", options.depth, kMaxDepth);
  }
  if (options.channels < 1) throw UsageError("disk: {} channels, expected at least 1", options.channels);
  return options;
}

TransportShape shape_of(const DiskOptions& options) { return {.block = options.block, .depth = options.depth}; }

uint64_t checksum(const std::byte* page) {
  const uint64_t hash = XXH3_64bits(page, kDiskAlignment);
  return hash == 0 ? 1 : hash;  // 0 is a page that was never written
}

}  // namespace

DiskStore::DiskStore(int64_t bytes, const DiskOptions& options, std::unique_ptr<DiskSystem> system)
    : options_(checked(options, bytes)), system_(std::move(system)), file_(bytes, options.folder, *system_) {
  const std::string where = options_.folder.string();
  switch (file_.place()) {
    case ExtentFile::Place::kMemory:
      spdlog::warn(
          "disk.path: {} lies in memory (tmpfs): its {} are host memory. Using the page cache, pread and pwrite", where,
          format_bytes(bytes));
      options_.direct = options_.io_uring = false;
      break;
    case ExtentFile::Place::kNetwork:
      spdlog::warn(
          "disk.path: {} lies on another machine: as fast as the network. Using the page cache, pread and pwrite",
          where);
      options_.direct = options_.io_uring = false;
      break;
    case ExtentFile::Place::kDisk:
      break;
  }
  if (options_.direct) {
    const std::string why_not = file_.use_direct();
    if (!why_not.empty()) spdlog::warn("disk.path: {}: no direct I/O ({}): using the page cache", where, why_not);
  }
  if (options_.verify) checksums_.resize(static_cast<size_t>(bytes / kDiskAlignment));
  open_channels();
}

DiskStore::~DiskStore() = default;

void DiskStore::open_channels() {
  std::string why_not;
  std::vector<std::unique_ptr<DiskTransport>> transports;
  if (options_.io_uring) transports = make_rings(why_not);
  uses_io_uring_ = !transports.empty();
  if (!why_not.empty()) {
    spdlog::warn("disk.path: {}: no io_uring ({}): using pread and pwrite on {} threads a lane",
                 options_.folder.string(), why_not, std::min(options_.depth, kPoolThreads));
  }
  while (static_cast<int>(transports.size()) < options_.channels) {
    transports.push_back(make_pool(file_, shape_of(options_)));
  }
  for (auto& transport : transports) channels_.push_back(std::make_unique<Channel>(*this, std::move(transport)));
}

// A ring for each channel, or none and the reason.
std::vector<std::unique_ptr<DiskTransport>> DiskStore::make_rings(std::string& why_not) const {
  std::vector<std::unique_ptr<DiskTransport>> rings;
  for (int i = 0; i < options_.channels; ++i) {
    rings.push_back(make_ring(file_, shape_of(options_), why_not));
    if (rings.back() == nullptr) return {};
  }
  return rings;
}

void DiskStore::register_memory(std::span<std::byte> memory) {
  is_registered_ = false;
  if (!uses_io_uring_) return;
  int error = 0;
  for (const auto& channel : channels_) {
    error = channel->register_memory(memory);
    if (error != 0) break;
  }
  is_registered_ = error == 0 && !memory.empty();
  if (error == 0) return;
  for (const auto& channel : channels_) channel->register_memory({});
  struct rlimit limit {};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string locked =
      limit.rlim_cur == RLIM_INFINITY ? "not limited" : format_bytes(static_cast<int64_t>(limit.rlim_cur));
  spdlog::warn(
      "disk.path: {}: {} of memory cannot be registered for {} lanes ({}; locked memory is {}, see ulimit -l): "
      "using it unregistered",
      options_.folder.string(), format_bytes(static_cast<int64_t>(memory.size())), options_.channels,
      std::strerror(error), locked);
}

int64_t DiskStore::bytes_needed(int64_t bytes, const DiskOptions& options) {
  const TransportShape shape = shape_of(checked(options, bytes));
  const int64_t channel = static_cast<int64_t>(sizeof(Channel)) + std::max(ring_bytes(shape), pool_bytes(shape));
  const int64_t checksums = options.verify ? bytes / kDiskAlignment * static_cast<int64_t>(sizeof(uint64_t)) : 0;
  return static_cast<int64_t>(sizeof(DiskStore)) + options.channels * channel + checksums;
}

DiskStore::Channel::Channel(DiskStore& store, std::unique_ptr<DiskTransport> transport)
    : store_(store), transport_(std::move(transport)) {}

int DiskStore::Channel::register_memory(std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  return transport_->register_memory(memory);
}

void DiskStore::Channel::check(int64_t offset, const std::byte* memory, size_t bytes) const {
  const auto length = static_cast<int64_t>(bytes);
  const bool is_aligned = offset % kDiskAlignment == 0 && length % kDiskAlignment == 0 &&
                          reinterpret_cast<uintptr_t>(memory) % kDiskAlignment == 0;
  if (!is_aligned || offset < 0 || length > store_.bytes() || offset > store_.bytes() - length) {
    throw RunError("{}: {} bytes at offset {} from memory at {}: expected multiples of {} within {} bytes",
                   store_.file().string(), length, offset, fmt::ptr(memory), kDiskAlignment, store_.bytes());
  }
  store_.file_.check_size();
}

void DiskStore::Channel::read(int64_t offset, std::span<std::byte> to) {
  if (to.empty()) return;
  check(offset, to.data(), to.size());
  const std::lock_guard lock(mutex_);
  transport_->transfer({.offset = offset, .length = static_cast<int64_t>(to.size()), .to = to.data()});
  if (!store_.is_direct()) store_.file_.drop_pages(offset, static_cast<int64_t>(to.size()));
  if (store_.checksums_.empty()) return;
  for (size_t at = 0; at < to.size(); at += kDiskAlignment) {
    const int64_t where = offset + static_cast<int64_t>(at);
    const uint64_t written = store_.checksums_[static_cast<size_t>(where / kDiskAlignment)];
    if (written != 0 && written != checksum(to.data() + at)) {
      throw RunError(
          "{}: the {} bytes at offset {} are not those that were written there: the disk or its cable loses data, or "
          "another program wrote to the file. Set disk.path to another disk and go on from the last checkpoint with "
          "--resume",
          store_.file().string(), kDiskAlignment, where);
    }
  }
}

void DiskStore::Channel::write(int64_t offset, std::span<const std::byte> from) {
  if (from.empty()) return;
  check(offset, from.data(), from.size());
  const std::lock_guard lock(mutex_);
  if (!store_.checksums_.empty()) {
    for (size_t at = 0; at < from.size(); at += kDiskAlignment) {
      const int64_t where = offset + static_cast<int64_t>(at);
      store_.checksums_[static_cast<size_t>(where / kDiskAlignment)] = checksum(from.data() + at);
    }
  }
  const DiskRequest request{.offset = offset, .length = static_cast<int64_t>(from.size()), .from = from.data()};
  if (store_.is_direct()) {
    transport_->transfer(request);
  } else {
    write_through_cache(request);
  }
}

// The lane is as slow as the disk: what it wrote is on the disk when it returns, and at most two windows are dirty.
void DiskStore::Channel::write_through_cache(const DiskRequest& request) {
  const int64_t window = store_.options_.block * store_.options_.depth;
  const auto window_at = [&](int64_t begin) { return request.part(begin, std::min(window, request.length - begin)); };
  for (int64_t begin = 0; begin < request.length; begin += window) {
    const DiskRequest now = window_at(begin);
    transport_->transfer(now);
    store_.file_.start_writeback(now.offset, now.length);
    if (begin > 0) {
      const DiskRequest before = window_at(begin - window);
      store_.file_.settle(before.offset, before.length);
    }
  }
  const DiskRequest last = window_at((request.length - 1) / window * window);
  store_.file_.settle(last.offset, last.length);
}

}  // namespace lazytrain::runtime
