// A disk that fails, stalls or moves less than it was asked to, on both transports.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "base/error.h"
#include "runtime/disk_store.h"
#include "runtime/disk_store_testing.h"

namespace lazytrain::runtime {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kPage = kDiskAlignment;
constexpr int64_t kBytes = 128 * kPage;  // eight blocks of DiskModes

using Answer = std::optional<int64_t>;

class DiskFaults : public DiskModes {
 protected:
  void SetUp() override {
    DiskModes::SetUp();
    if (IsSkipped()) return;
    sector_ = sector();
    store_ = faulty(kBytes, system_);
  }
  void write(const TestMemory& memory) { store_->channel(1).write(0, memory.bytes()); }
  void read(const TestMemory& memory) { store_->channel(0).read(0, memory.bytes()); }
  // After a fault all of it works again.
  void expect_usable() {
    system_->disarm();
    const TestMemory written(kBytes, 77);
    const TestMemory back(kBytes);
    write(written);
    read(back);
    EXPECT_TRUE(back.equals(written));
  }

  int64_t sector_ = 0;
  FaultySystem* system_ = nullptr;
  std::unique_ptr<DiskStore> store_;
  TestMemory memory_{kBytes, 1};
};
INSTANTIATE_TEST_SUITE_P(Modes, DiskFaults, kModes, mode_name);

TEST_P(DiskFaults, ErrorsNameFileOffsetAndRemedy) {
  struct Case {
    int error;
    bool reads;
    const char* remedy;
  };
  for (const Case& c : {Case{EIO, true, "dmesg"}, Case{EIO, false, "dmesg"}, Case{ENOSPC, false, "Free some room"},
                        Case{EDQUOT, false, "Free some room"}, Case{ENODEV, true, "dmesg"}}) {
    system_->arm([&](const DiskRequest& r) -> Answer {
      return r.reads() == c.reads && r.offset == 3 * kBlock ? Answer(-c.error) : std::nullopt;
    });
    const std::string message = message_of<RunError>([&] { c.reads ? read(memory_) : write(memory_); });
    EXPECT_THAT(message, AllOf(HasSubstr(store_->file().string()), HasSubstr(c.reads ? "cannot read" : "cannot write"),
                               HasSubstr("65536 bytes at offset 196608"), HasSubstr(std::strerror(c.error)),
                               HasSubstr(c.remedy), HasSubstr("--resume")));
    expect_usable();
  }
}

TEST_P(DiskFaults, EveryBlockFails) {
  std::atomic<int> asked{0};
  system_->arm([&](const DiskRequest&) -> Answer { return ++asked, -EIO; });
  EXPECT_THAT(message_of<RunError>([&] { read(memory_); }), HasSubstr("Input/output error"));
  EXPECT_LE(asked, 4);  // the depth: after the first error nothing new begins
  expect_usable();
}

TEST_P(DiskFaults, NothingNewBeginsAfterAnError) {
  if (GetParam().io_uring) GTEST_SKIP() << "other blocks may be done before the one that fails; see EveryBlockFails";
  std::atomic<int> asked{0};
  std::atomic<bool> failed{false};
  system_->arm([&](const DiskRequest& r) -> Answer {
    ++asked;
    if (r.offset == 0) return failed = true, -EIO;
    while (!failed) std::this_thread::yield();  // the other threads are at their first block when one fails
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return std::nullopt;
  });
  EXPECT_THROW(read(memory_), RunError);
  EXPECT_LE(asked, 4);
  expect_usable();
}

TEST_P(DiskFaults, InterruptionsAreRetried) {
  for (const int error : {EINTR, EAGAIN}) {
    std::atomic<int> asked{0};
    system_->arm([&](const DiskRequest&) -> Answer { return ++asked % 3 != 0 ? Answer(-error) : std::nullopt; });
    const TestMemory back(kBytes);
    write(memory_);
    read(back);
    EXPECT_TRUE(back.equals(memory_));
    EXPECT_GE(asked, 3 * 16);
  }
}

TEST_P(DiskFaults, RefusingForeverIsAnError) {
  system_->arm([](const DiskRequest& r) -> Answer { return r.offset == kBlock ? Answer(-EAGAIN) : std::nullopt; });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(message_of<RunError>([&] { write(memory_); }),
              AllOf(HasSubstr("at offset 65536"), HasSubstr(std::strerror(EAGAIN))));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  expect_usable();
}

TEST_P(DiskFaults, WritingNothingForeverIsAnError) {
  system_->arm([](const DiskRequest& r) -> Answer { return r.offset == kBlock ? Answer(0) : std::nullopt; });
  EXPECT_THAT(message_of<RunError>([&] { write(memory_); }), HasSubstr("cannot write"));
  expect_usable();
}

TEST_P(DiskFaults, ShortTransfersGoOnWhereTheyStopped) {
  // Direct I/O moves whole sectors; of a page of which less was moved, all is moved again.
  for (const int64_t most : {kPage, 3 * kPage, 5 * kPage + sector_ % kPage, 11 * kPage + 7 * sector_ % kPage}) {
    system_->arm([&](const DiskRequest& r) -> Answer { return r.length > most ? Answer(most) : std::nullopt; });
    const TestMemory back(kBytes);
    write(memory_);
    read(back);
    EXPECT_TRUE(back.equals(memory_)) << most;
    memory_.fill(static_cast<uint64_t>(most));
  }
}

TEST_P(DiskFaults, ShortTransfersOfLessThanAPage) {
  if (sector_ == kPage) GTEST_SKIP() << "direct I/O moves whole pages here";
  std::atomic<int> asked{0};
  system_->arm([&](const DiskRequest& r) -> Answer {
    EXPECT_TRUE(!GetParam().direct || r.offset % kPage == 0);  // other disks refuse less than a page
    return ++asked % 2 == 1 ? Answer(sector_) : std::nullopt;
  });
  const TestMemory back(kBytes);
  write(memory_);
  read(back);
  EXPECT_TRUE(back.equals(memory_));
  EXPECT_GT(asked, 20);
}

TEST_P(DiskFaults, EndOfFileInTheMiddleIsATruncatedExtent) {
  write(memory_);
  system_->arm([&](const DiskRequest& r) -> Answer {
    if (r.offset == 5 * kBlock) {
      EXPECT_EQ(::truncate(store_->file().c_str(), 4 * kBlock), 0);  // while the call is under way
    }
    return std::nullopt;
  });
  EXPECT_THAT(
      message_of<RunError>([&] { read(memory_); }),
      AllOf(HasSubstr("truncated extent"), HasSubstr(store_->file().string()), HasSubstr("262144 bytes of 524288")));
}

TEST_P(DiskFaults, MoreThanAskedIsAnError) {
  if (!GetParam().io_uring) GTEST_SKIP() << "pread and pwrite cannot say so";
  system_->on_completed = [](int64_t result) { return result + 1; };
  EXPECT_THAT(message_of<RunError>([&] { read(memory_); }), HasSubstr("65537 of 65536"));
  system_->on_completed = nullptr;
  expect_usable();
}

TEST_P(DiskFaults, WritebackThatFailsIsAnError) {
  if (GetParam().direct) GTEST_SKIP() << "direct I/O has no writeback";
  system_->on_sync = [](int64_t offset, unsigned flags) {  // found only by who waits for the last window
    return offset == kBytes / 2 && (flags & SYNC_FILE_RANGE_WAIT_AFTER) != 0 ? (errno = EIO, -1) : 0;
  };
  EXPECT_THAT(message_of<RunError>([&] { write(memory_); }),
              AllOf(HasSubstr("cannot write"), HasSubstr("Input/output")));
  std::atomic<int> interrupted{0};
  system_->on_sync = [&](int64_t, unsigned) { return ++interrupted % 2 == 1 ? (errno = EINTR, -1) : 0; };
  EXPECT_NO_THROW(write(memory_));
  EXPECT_GT(interrupted, 2);
  system_->on_sync = [](int64_t, unsigned) { return errno = ENOSYS, -1; };  // then all of the file is synced
  expect_usable();
}

TEST_P(DiskFaults, NothingIsLeftAfterAnError) {
  system_->arm([](const DiskRequest&) -> Answer { return -EIO; });
  EXPECT_THROW(write(memory_), RunError);
  store_.reset();
  EXPECT_EQ(folder_.files(), 0);
}

TEST_P(DiskFaults, OneLaneFailsAndTheOtherGoesOn) {
  system_->arm([](const DiskRequest& r) -> Answer { return r.reads() ? Answer(-EIO) : std::nullopt; });
  EXPECT_THROW(read(memory_), RunError);
  EXPECT_NO_THROW(write(memory_));
}

}  // namespace
}  // namespace lazytrain::runtime
