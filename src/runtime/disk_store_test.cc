#include "runtime/disk_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "base/error.h"
#include "runtime/disk_store_testing.h"

namespace lazytrain::runtime {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

constexpr int64_t kPage = kDiskAlignment;

using DiskStoreModes = DiskModes;
INSTANTIATE_TEST_SUITE_P(Modes, DiskStoreModes, kModes, mode_name);

TEST_P(DiskStoreModes, ReadsWhatItWrote) {
  constexpr int64_t kBytes = 64 * kPage;
  DiskStore store(kBytes, options());
  const TestMemory written(kBytes, 1);
  const TestMemory read(kBytes);
  store.channel(1).write(0, written.bytes());
  store.channel(0).read(0, read.bytes());
  EXPECT_TRUE(read.equals(written));

  // Lengths around a block (16 pages), a part in the middle, the last page.
  for (const int64_t pages : {1, 15, 16, 17, 33}) {
    const TestMemory part(pages * kPage, static_cast<uint64_t>(pages));
    const TestMemory back(pages * kPage);
    store.channel(1).write(7 * kPage, part.bytes());
    store.channel(0).read(7 * kPage, back.bytes());
    EXPECT_TRUE(back.equals(part)) << pages;
  }
  store.channel(0).read(63 * kPage, read.part(0, kPage));
  EXPECT_TRUE(std::ranges::equal(read.part(0, kPage), written.part(63 * kPage, kPage)));
}

TEST_P(DiskStoreModes, WhatWasNeverWrittenIsZero) {
  DiskStore store(8 * kPage, options());
  const TestMemory read(7 * kPage, 3);
  store.channel(0).read(kPage, read.bytes());
  EXPECT_TRUE(read.equals(TestMemory(7 * kPage)));
}

TEST_P(DiskStoreModes, RefusesWhatIsNotAlignedOrOutside) {
  DiskStore store(8 * kPage, options());
  const TestMemory memory(9 * kPage);
  DiskStore::Channel& channel = store.channel(0);
  EXPECT_THROW(channel.read(1, memory.part(0, kPage)), RunError);
  EXPECT_THROW(channel.read(0, memory.part(0, 100)), RunError);
  EXPECT_THROW(channel.write(0, memory.part(8, kPage)), RunError);
  EXPECT_THROW(channel.write(-kPage, memory.part(0, kPage)), RunError);
  EXPECT_THROW(channel.write(8 * kPage, memory.part(0, kPage)), RunError);
  EXPECT_THROW(channel.write(0, memory.bytes()), RunError);
  EXPECT_THROW(channel.write(INT64_MAX / kPage * kPage, memory.part(0, kPage)), RunError);
  EXPECT_NO_THROW(channel.write(7 * kPage, memory.part(0, kPage)));
  EXPECT_NO_THROW(channel.read(8 * kPage, memory.part(0, 0)));
}

TEST_P(DiskStoreModes, FileIsThereWholeAndGoneAfterwards) {
  constexpr int64_t kBytes = 100 * kPage;
  {
    const DiskStore store(kBytes, options());
    EXPECT_THAT(store.file().filename().string(),
                MatchesRegex("lazytrain-" + std::to_string(::getpid()) + "-[0-9a-f]+\\.extent"));
    struct stat stat {};
    ASSERT_EQ(::stat(store.file().c_str(), &stat), 0);
    EXPECT_EQ(stat.st_size, kBytes);
    EXPECT_GE(stat.st_blocks * 512, kBytes);
    EXPECT_EQ(stat.st_mode & 0777, 0600u);
    EXPECT_EQ(folder_.files(), 1);
  }
  EXPECT_EQ(folder_.files(), 0);
}

TEST_P(DiskStoreModes, UsesRegisteredMemoryAndOther) {
  constexpr int64_t kBytes = 40 * kPage;
  DiskStore store(kBytes, options());
  const TestMemory registered(kBytes, 4);
  const TestMemory other(kBytes);
  store.register_memory(registered.bytes());
  EXPECT_EQ(store.is_registered(), GetParam().io_uring);
  store.channel(1).write(0, registered.bytes());
  store.channel(0).read(0, other.bytes());
  EXPECT_TRUE(other.equals(registered));
  store.register_memory(other.bytes());  // replaces the first
  other.bytes()[5] ^= std::byte{1};
  store.channel(1).write(0, other.bytes());
  store.channel(1).read(0, registered.bytes());
  EXPECT_TRUE(other.equals(registered));
  store.register_memory({});
  EXPECT_FALSE(store.is_registered());
}

TEST_P(DiskStoreModes, VerifyFindsWhatChangedOnTheDisk) {
  constexpr int64_t kBytes = 48 * kPage;
  for (const bool verify : {false, true}) {
    DiskOptions with = options();
    with.verify = verify;
    DiskStore store(kBytes, with);
    const TestMemory memory(kBytes, 5);
    store.channel(1).write(0, memory.part(0, 40 * kPage));
    const int fd = ::open(store.file().c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_EQ(::pwrite(fd, "x", 1, 33 * kPage + 17), 1);  // one byte of a page that was written
    ASSERT_EQ(::pwrite(fd, "x", 1, 44 * kPage), 1);       // and one that was not
    ASSERT_EQ(::fsync(fd), 0);
    ::close(fd);
    const auto read = [&](int64_t page, int64_t pages) {
      store.channel(0).read(page * kPage, memory.part(0, pages * kPage));
    };
    EXPECT_NO_THROW(read(0, 33));
    EXPECT_NO_THROW(read(34, 14));
    if (verify) {
      EXPECT_THAT(message_of<RunError>([&] { read(20, 20); }),
                  AllOf(HasSubstr(store.file().string()), HasSubstr("offset 135168 "), HasSubstr("--resume")));
    } else {
      EXPECT_NO_THROW(read(20, 20));
    }
    memory.fill(6);
    store.channel(1).write(33 * kPage, memory.part(0, kPage));  // written anew, it is whole again
    EXPECT_NO_THROW(read(20, 20));
  }
}

TEST_P(DiskStoreModes, FindsTruncatedExtent) {
  DiskStore store(32 * kPage, options());
  const TestMemory memory(32 * kPage, 7);
  store.channel(1).write(0, memory.bytes());
  ASSERT_EQ(::truncate(store.file().c_str(), 10 * kPage + 100), 0);
  const auto expected = AllOf(HasSubstr("truncated extent"), HasSubstr(store.file().string()), HasSubstr("41060"));
  EXPECT_THAT(message_of<RunError>([&] { store.channel(0).read(0, memory.part(0, kPage)); }), expected);
  EXPECT_THAT(message_of<RunError>([&] { store.channel(1).write(20 * kPage, memory.part(0, kPage)); }), expected);
}

TEST(DiskStore, RegisteredMemoryInSeveralPieces) {
  const TestFolder folder;
  DiskSystem system;
  ExtentFile file(64 * kPage, folder.path(), system);
  file.use_direct();
  std::string why_not;
  const auto ring = make_ring(file, {.block = 3 * kPage, .depth = 3, .piece = 8 * kPage}, why_not);
  if (ring == nullptr) GTEST_SKIP() << "no io_uring here: " << why_not;
  const TestMemory written(64 * kPage, 8);
  const TestMemory read(64 * kPage);
  ASSERT_EQ(ring->register_memory(written.part(kPage, 60 * kPage)), 0);  // blocks inside, across and outside of pieces
  ring->transfer({.offset = 0, .length = 64 * kPage, .from = written.bytes().data()});
  ASSERT_EQ(ring->register_memory(read.part(kPage, 60 * kPage)), 0);
  ring->transfer({.offset = 0, .length = 64 * kPage, .to = read.bytes().data()});
  EXPECT_TRUE(read.equals(written));
}

TEST(DiskStore, SaysHowMuchMemoryItTakes) {
  const DiskOptions plain;
  DiskOptions verified;
  verified.verify = true;
  const int64_t bytes = int64_t{1} << 30;
  EXPECT_EQ(DiskStore::bytes_needed(bytes, verified) - DiskStore::bytes_needed(bytes, plain), bytes / 4096 * 8);
  EXPECT_LT(DiskStore::bytes_needed(bytes, plain), 1 << 20);
  DiskOptions wide;
  wide.channels = 4;
  EXPECT_GT(DiskStore::bytes_needed(bytes, wide), DiskStore::bytes_needed(bytes, plain));
}

TEST(DiskStore, RefusesOptionsThatMeanNothing) {
  const TestFolder folder;
  const auto refused = [&](int64_t bytes, auto change) {
    DiskOptions options{.folder = folder.path()};
    change(options);
    EXPECT_THROW(DiskStore(bytes, options), UsageError);
  };
  refused(0, [](DiskOptions&) {});
  refused(kPage + 1, [](DiskOptions&) {});
  refused(kPage, [](DiskOptions& o) { o.block = 1000; });
  refused(kPage, [](DiskOptions& o) { o.block = int64_t{2} << 30; });
  refused(kPage, [](DiskOptions& o) { o.depth = 0; });
  refused(kPage, [](DiskOptions& o) { o.channels = 0; });
  EXPECT_EQ(folder.files(), 0);
}

TEST(DiskStore, FoldersThatTakeNoFileAreSaid) {
  const TestFolder folder;
  const auto message = [](const fs::path& path) {
    return message_of<UsageError>([&] { DiskStore(kPage, {.folder = path}); });
  };
  EXPECT_THAT(message(folder.path() / "missing"), AllOf(HasSubstr("disk.path: "), HasSubstr("missing does not exist")));
  std::ofstream(folder.path() / "file") << "x";
  EXPECT_THAT(message(folder.path() / "file"), AllOf(HasSubstr("disk.path: "), HasSubstr("file is no folder")));
  EXPECT_THAT(message(folder.path() / "file" / "below"), HasSubstr("disk.path: "));
  EXPECT_THAT(message(""), HasSubstr("disk.path: "));
}

// Refusals of the system: each is one line, and the store works.
class DiskRefusals : public ::testing::Test {
 protected:
  // Builds a store over a changed system, moves bytes through it, and returns what it logged.
  std::vector<std::string> lines(const std::function<void(FaultySystem&)>& change, const DiskOptions& options) {
    const CapturedLog log;
    auto system = std::make_unique<FaultySystem>();
    change(*system);
    const TestMemory written(32 * kPage, 9);
    DiskStore store(32 * kPage, options, std::move(system));
    const TestMemory read(32 * kPage);
    store.register_memory(written.bytes());
    store.channel(1).write(0, written.bytes());
    store.channel(0).read(0, read.bytes());
    EXPECT_TRUE(read.equals(written));
    uses_io_uring_ = store.uses_io_uring();
    is_direct_ = store.is_direct();
    is_registered_ = store.is_registered();
    return log.lines();
  }
  std::vector<std::string> lines(const std::function<void(FaultySystem&)>& change) {
    return lines(change, {.folder = folder_.path(), .block = 4 * kPage});
  }

  TestFolder folder_;
  bool uses_io_uring_ = true;
  bool is_direct_ = true;
  bool is_registered_ = true;
};

TEST_F(DiskRefusals, NoIoUring) {
  const std::vector<std::pair<int, std::string>> cases = {{ENOSYS, "this kernel has none"},
                                                          {EPERM, "io_uring_disabled"},
                                                          {ENOMEM, "ulimit -l"},
                                                          {EMFILE, "Too many open files"}};
  for (const auto& [error, reason] : cases) {
    const auto said = lines([e = error](FaultySystem& system) { system.ring_error = e; });
    EXPECT_THAT(said, ElementsAre(AllOf(HasSubstr("no io_uring"), HasSubstr(reason), HasSubstr("pread"))));
    EXPECT_FALSE(uses_io_uring_);
  }
}

TEST_F(DiskRefusals, IoUringThatCanBeMadeButNotUsed) {
  if (!DiskStore(kPage, {.folder = folder_.path()}).uses_io_uring()) GTEST_SKIP() << "no io_uring here";
  const auto said = lines([](FaultySystem& system) { system.on_completed = [](int64_t) { return -EACCES; }; });
  EXPECT_THAT(said, ElementsAre(AllOf(HasSubstr("no io_uring"), HasSubstr("Permission denied"))));
  EXPECT_FALSE(uses_io_uring_);
}

TEST_F(DiskRefusals, SwitchedOffWithoutALine) {
  EXPECT_THAT(lines([](FaultySystem&) {}, {.folder = folder_.path(), .io_uring = false, .direct = false}), IsEmpty());
  EXPECT_FALSE(uses_io_uring_);
  EXPECT_FALSE(is_direct_);
}

TEST_F(DiskRefusals, NoDirectIo) {
  const auto none = lines([](FaultySystem& system) { system.alignment = 0; });
  EXPECT_THAT(none, ElementsAre(AllOf(HasSubstr("no direct I/O"), HasSubstr("page cache"))));
  EXPECT_FALSE(is_direct_);
  const auto large = lines([](FaultySystem& system) { system.alignment = 16384; });
  EXPECT_THAT(large, ElementsAre(AllOf(HasSubstr("no direct I/O"), HasSubstr("16384"))));
  EXPECT_FALSE(is_direct_);
  const auto first_block = lines([](FaultySystem& system) {
    system.arm([first = true](const DiskRequest&) mutable -> std::optional<int64_t> {
      return std::exchange(first, false) ? std::optional<int64_t>(-EINVAL) : std::nullopt;
    });
  });
  EXPECT_THAT(first_block, ElementsAre(AllOf(HasSubstr("no direct I/O"), HasSubstr("Invalid argument"))));
  EXPECT_FALSE(is_direct_);
}

TEST_F(DiskRefusals, MemoryThatCannotBeRegistered) {
  const auto said = lines([](FaultySystem& system) { system.register_error = ENOMEM; });
  if (!uses_io_uring_) GTEST_SKIP() << "no io_uring here";
  EXPECT_THAT(said, ElementsAre(AllOf(HasSubstr("cannot be registered"), HasSubstr("ulimit -l"))));
  EXPECT_FALSE(is_registered_);
}

TEST_F(DiskRefusals, AnotherMachinesDisk) {
  std::ofstream(folder_.path() / "lazytrain-1-0123456789abcdef.extent") << "perhaps in use over there";
  for (const int64_t magic : {int64_t{NFS_SUPER_MAGIC}, int64_t{0xFE534D42}}) {
    const auto said = lines([&](FaultySystem& system) { system.magic = magic; });
    EXPECT_THAT(said, ElementsAre(HasSubstr("another machine")));
    EXPECT_FALSE(uses_io_uring_);
    EXPECT_FALSE(is_direct_);
    EXPECT_EQ(folder_.files(), 1);
  }
}

TEST_F(DiskRefusals, Tmpfs) {
  std::error_code error;
  if (!fs::is_directory("/dev/shm", error)) GTEST_SKIP() << "no /dev/shm here";
  const TestFolder memory("/dev/shm");
  const auto said = lines([](FaultySystem&) {}, {.folder = memory.path()});
  EXPECT_THAT(said, ElementsAre(AllOf(HasSubstr("tmpfs"), HasSubstr("host memory"))));
  EXPECT_FALSE(uses_io_uring_);
  EXPECT_FALSE(is_direct_);
  EXPECT_EQ(memory.files(), 0);
}

TEST_F(DiskRefusals, NoFallocate) {
  const auto said =
      lines([](FaultySystem& system) { system.on_fallocate = [](int, int64_t) { return errno = EOPNOTSUPP, -1; }; });
  EXPECT_THAT(said, ElementsAre(HasSubstr("zeros")));
}

TEST(DiskRoom, IsCheckedBeforeAFileIsMade) {
  const TestFolder folder;
  auto system = std::make_unique<FaultySystem>();
  system->free = 10 * kPage - 1;
  bool asked = false;
  system->on_fallocate = [&](int, int64_t) { return asked = true, 0; };
  const std::string message =
      message_of<Infeasible>([&] { DiskStore(10 * kPage, {.folder = folder.path()}, std::move(system)); });
  EXPECT_THAT(message, AllOf(HasSubstr("disk: 41.0 kB needed"), HasSubstr(folder.path().string()),
                             HasSubstr("1 B short"), HasSubstr("disk.path")));
  EXPECT_FALSE(asked);
  EXPECT_EQ(folder.files(), 0);
}

TEST(DiskRoom, MoreThanTheDiskHas) {
  const TestFolder folder;
  EXPECT_THROW(DiskStore(int64_t{1} << 60, {.folder = folder.path()}), Infeasible);
  EXPECT_EQ(folder.files(), 0);
}

TEST(DiskRoom, FullAtStartLeavesNothing) {
  for (const int error : {ENOSPC, EDQUOT, EIO}) {
    const TestFolder folder;
    auto system = std::make_unique<FaultySystem>();
    system->on_fallocate = [error](int, int64_t) { return errno = error, -1; };
    const auto make = [&] { DiskStore(10 * kPage, {.folder = folder.path()}, std::move(system)); };
    if (error == EIO) {
      EXPECT_THAT(message_of<RunError>(make), HasSubstr("Input/output error"));
    } else {
      EXPECT_THAT(message_of<Infeasible>(make), AllOf(HasSubstr("disk: "), HasSubstr(std::strerror(error))));
    }
    EXPECT_EQ(folder.files(), 0);
  }
}

TEST(DiskRoom, ZerosAreWrittenWhereNothingCanBeReserved) {
  const TestFolder folder;
  const auto make = [&](FaultySystem::Answer answer, std::function<int(int64_t, unsigned)> sync) {
    auto system = std::make_unique<FaultySystem>();
    system->on_fallocate = [](int, int64_t) { return errno = EOPNOTSUPP, -1; };
    system->on_sync = std::move(sync);
    system->arm(std::move(answer));
    return std::make_unique<DiskStore>(768 * kPage, DiskOptions{.folder = folder.path()}, std::move(system));
  };
  const CapturedLog log;
  {
    const auto store = make(nullptr, nullptr);
    struct stat stat {};
    ASSERT_EQ(::stat(store->file().c_str(), &stat), 0);
    EXPECT_EQ(stat.st_size, 768 * kPage);
    EXPECT_GE(stat.st_blocks * 512, 768 * kPage);
  }
  EXPECT_THAT(message_of<Infeasible>([&] {
                make(
                    [](const DiskRequest& r) -> std::optional<int64_t> {
                      if (r.offset < 512 * kPage) return std::nullopt;
                      return -ENOSPC;
                    },
                    nullptr);
              }),
              AllOf(HasSubstr("3.15 MB needed"), HasSubstr("2.10 MB free"), HasSubstr("No space left")));
  EXPECT_THAT(message_of<RunError>([&] { make(nullptr, [](int64_t, unsigned) { return errno = EIO, -1; }); }),
              HasSubstr("Input/output error"));
  EXPECT_EQ(folder.files(), 0);
}

TEST(DiskStale, ExtentsOfTheDeadGoAndThoseOfTheLivingStay) {
  const TestFolder folder;
  const DiskStore living(kPage, {.folder = folder.path()});
  const auto put = [&](const std::string& name) { std::ofstream(folder.path() / name) << "bytes"; };
  put("lazytrain-1-0123456789abcdef.extent");
  put("lazytrain-99999999-ffffffffffffffff.extent");
  // None of these is ours.
  const std::vector<std::string> others = {"lazytrain-1-0123456789abcdef.extent.bak",
                                           "lazytrain--0123456789abcdef.extent",
                                           "lazytrain-1-0123456789ABCDEF.extent",
                                           "lazytrain-1-abc.extent",
                                           "lazytrain-.extent",
                                           "model.extent",
                                           "lazytrain-1-0123456789abcdef.backup"};
  for (const std::string& name : others) put(name);
  fs::create_directory(folder.path() / "lazytrain-2-0123456789abcdef.extent");
  fs::create_symlink(folder.path() / "model.extent", folder.path() / "lazytrain-3-0123456789abcdef.extent");
  ASSERT_EQ(::mkfifo((folder.path() / "lazytrain-4-0123456789abcdef.extent").c_str(), 0600), 0);

  const CapturedLog log;
  const DiskStore store(kPage, {.folder = folder.path()});
  EXPECT_EQ(log.lines().size(), 2u);
  EXPECT_FALSE(fs::exists(folder.path() / "lazytrain-1-0123456789abcdef.extent"));
  EXPECT_FALSE(fs::exists(folder.path() / "lazytrain-99999999-ffffffffffffffff.extent"));
  EXPECT_TRUE(fs::exists(living.file()));
  for (const std::string& name : others) EXPECT_TRUE(fs::exists(folder.path() / name)) << name;
  EXPECT_EQ(folder.files(), static_cast<int>(others.size()) + 3 + 2);
}

}  // namespace
}  // namespace lazytrain::runtime
