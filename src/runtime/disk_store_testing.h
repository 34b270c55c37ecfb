// What the tests of the disk store share: folders, captured log lines, memory, and a system that fails on demand.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "runtime/arena.h"
#include "runtime/disk_store.h"

namespace lazytrain::runtime {

// An empty folder of this test, removed at its end.
class TestFolder {
 public:
  explicit TestFolder(const std::filesystem::path& parent = ::testing::TempDir()) {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = fmt::format("disk_{}_{}_{}", ::getpid(), info->test_suite_name(), info->name());
    for (char& c : name) c = c == '/' ? '_' : c;
    path_ = parent / name;
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  int files() const {
    return static_cast<int>(
        std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()));
  }

 private:
  std::filesystem::path path_;
};

// What is logged while it lives, a line each.
class CapturedLog {
 public:
  CapturedLog() : before_(spdlog::default_logger()) {
    auto logger = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_));
    logger->set_pattern("%v");
    spdlog::set_default_logger(std::move(logger));
  }
  ~CapturedLog() { spdlog::set_default_logger(before_); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    std::istringstream in(text_.str());
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }

 private:
  std::shared_ptr<spdlog::logger> before_;
  std::ostringstream text_;
};

// Page-aligned bytes that differ from those of any other seed.
class TestMemory {
 public:
  explicit TestMemory(int64_t bytes, uint64_t seed = 0) : arena_(bytes, "a test") {
    if (seed != 0) fill(seed);
  }
  void fill(uint64_t seed) const {
    const CounterRng rng(seed, 0);
    auto* words = reinterpret_cast<uint64_t*>(arena_.at(0));
    for (int64_t i = 0; i < arena_.bytes() / 8; ++i) words[i] = rng.bits(static_cast<uint64_t>(i));
  }
  std::span<std::byte> bytes() const { return {arena_.at(0), static_cast<size_t>(arena_.bytes())}; }
  std::span<std::byte> part(int64_t offset, int64_t length) const {
    return bytes().subspan(static_cast<size_t>(offset), static_cast<size_t>(length));
  }
  bool equals(const TestMemory& other) const { return std::ranges::equal(bytes(), other.bytes()); }

 private:
  Arena arena_;
};

// The system, but for what `answer` says while armed. The same answers reach both transports: pread and pwrite of the
// pool, submission and completion of io_uring.
class FaultySystem : public DiskSystem {
 public:
  // For a request of `length` bytes at `offset`: nothing (the system answers), a negative errno, or how many bytes are
  // really moved at most. Asked by several threads at a time.
  using Answer = std::function<std::optional<int64_t>(const DiskRequest&)>;

  void arm(Answer answer) {
    const std::lock_guard lock(mutex_);
    answer_ = answer ? std::make_shared<Answer>(std::move(answer)) : nullptr;
  }
  void disarm() { arm(nullptr); }

  std::function<int(int fd, int64_t bytes)> on_fallocate;      // 0, or -1 and errno
  std::function<int(int64_t offset, unsigned flags)> on_sync;  // 0, or -1 and errno
  std::function<int64_t(int64_t)> on_completed;                // what the ring says instead of a result
  std::optional<int64_t> free, magic, alignment;
  int ring_error = 0;      // errno of a refused ring
  int register_error = 0;  // errno of refused registered memory

  ssize_t pread(int fd, std::span<std::byte> to, int64_t offset) override {
    const auto said = ask({.offset = offset, .length = static_cast<int64_t>(to.size()), .to = to.data()});
    if (said && *said < 0) return fail(*said);
    return DiskSystem::pread(fd, said ? to.first(static_cast<size_t>(*said)) : to, offset);
  }
  ssize_t pwrite(int fd, std::span<const std::byte> from, int64_t offset) override {
    const auto said = ask({.offset = offset, .length = static_cast<int64_t>(from.size()), .from = from.data()});
    if (said && *said < 0) return fail(*said);
    return DiskSystem::pwrite(fd, said ? from.first(static_cast<size_t>(*said)) : from, offset);
  }
  int fallocate(int fd, int64_t bytes) override {
    return on_fallocate ? on_fallocate(fd, bytes) : DiskSystem::fallocate(fd, bytes);
  }
  int sync_file_range(int fd, int64_t offset, int64_t bytes, unsigned flags) override {
    return on_sync ? on_sync(offset, flags) : DiskSystem::sync_file_range(fd, offset, bytes, flags);
  }
  int64_t free_bytes(int fd) override { return free ? *free : DiskSystem::free_bytes(fd); }
  int64_t file_system(int fd) override { return magic ? *magic : DiskSystem::file_system(fd); }
  int64_t direct_alignment(int fd) override { return alignment ? *alignment : DiskSystem::direct_alignment(fd); }
  int setup_ring(unsigned entries, io_uring& ring) override {
    return ring_error != 0 ? -ring_error : DiskSystem::setup_ring(entries, ring);
  }
  int register_buffers(io_uring& ring, std::span<const iovec> buffers) override {
    return register_error != 0 ? -register_error : DiskSystem::register_buffers(ring, buffers);
  }
  int64_t submitted(const DiskRequest& request) override {
    const auto said = ask(request);
    if (said && *said >= 0) return *said;
    if (said) {
      const std::lock_guard lock(mutex_);
      pending_[request.offset] = *said;
    }
    return request.length;
  }
  int64_t completed(const DiskRequest& request, int64_t result) override {
    const std::lock_guard lock(mutex_);
    if (on_completed) return on_completed(result);
    const auto said = pending_.find(request.offset);
    if (said == pending_.end()) return result;
    const int64_t error = said->second;
    pending_.erase(said);
    return error;
  }

 private:
  static int fail(int64_t error) {
    errno = static_cast<int>(-error);
    return -1;
  }
  std::optional<int64_t> ask(const DiskRequest& request) {
    std::shared_ptr<Answer> answer;
    {
      const std::lock_guard lock(mutex_);
      answer = answer_;
    }
    const auto said = answer ? (*answer)(request) : std::nullopt;
    return said ? std::optional(std::min(*said, request.length)) : said;
  }

  std::mutex mutex_;
  std::shared_ptr<Answer> answer_;
  std::map<int64_t, int64_t> pending_;  // errors by offset, for requests that the ring has taken
};

struct Mode {
  bool io_uring;
  bool direct;
};
inline std::string mode_name(const ::testing::TestParamInfo<Mode>& info) {
  return std::string(info.param.io_uring ? "Ring" : "Pool") + (info.param.direct ? "Direct" : "Cached");
}
inline const auto kModes =
    ::testing::Values(Mode{true, true}, Mode{true, false}, Mode{false, true}, Mode{false, false});

// Tests that run in each mode; skipped, with the reason, where this machine lacks it.
class DiskModes : public ::testing::TestWithParam<Mode> {
 protected:
  static constexpr int64_t kBlock = 64 << 10;

  DiskOptions options() const {
    return {.folder = folder_.path(),
            .io_uring = GetParam().io_uring,
            .direct = GetParam().direct,
            .depth = 4,
            .block = kBlock};
  }
  void SetUp() override {
    const CapturedLog log;
    const DiskStore store(kDiskAlignment, options());
    if (GetParam().io_uring && !store.uses_io_uring()) GTEST_SKIP() << "no io_uring here: " << log.lines().back();
    if (GetParam().direct && !store.is_direct()) GTEST_SKIP() << "no direct I/O here: " << log.lines().back();
  }
  // What a short transfer can be a multiple of in this mode, in bytes.
  int64_t sector() const {
    if (!GetParam().direct) return 1;
    const DiskStore store(kDiskAlignment, options());
    const int fd = ::open(store.file().c_str(), O_RDONLY | O_CLOEXEC);
    const int64_t alignment = DiskSystem().direct_alignment(fd);
    ::close(fd);
    return alignment;
  }
  // A store over a system that fails on demand.
  std::unique_ptr<DiskStore> faulty(int64_t bytes, FaultySystem*& system) const {
    return faulty(bytes, system, options());
  }
  static std::unique_ptr<DiskStore> faulty(int64_t bytes, FaultySystem*& system, const DiskOptions& options) {
    auto owned = std::make_unique<FaultySystem>();
    system = owned.get();
    return std::make_unique<DiskStore>(bytes, options, std::move(owned));
  }

  TestFolder folder_;
};

// The message of the error of type E that `body` throws.
template <typename E>
std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another type of error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace lazytrain::runtime
