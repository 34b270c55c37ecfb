// What needs a process of its own: kills, limits, system-call filters, file systems that take no file.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "base/error.h"
#include "runtime/disk_store.h"
#include "runtime/disk_store_testing.h"

namespace lazytrain::runtime {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPage = kDiskAlignment;
constexpr int64_t kBytes = 256 * kPage;

// Exit codes of a child.
constexpr int kPassed = 0;
constexpr int kFailed = 1;
constexpr int kNotPermitted = 2;  // this machine does not let us make the situation

// Forks, runs `body` in the child and returns its process.
pid_t start(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = kFailed;
    try {
      code = body();
    } catch (const std::exception& error) {
      fprintf(stderr, "child: %s\n", error.what());
    }
    ::_exit(code);
  }
  return child;
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

int exit_code(const std::function<int()>& body) {
  const int status = wait_for(start(body));
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int expect(bool holds, const char* what) {
  if (!holds) fprintf(stderr, "child: not so: %s\n", what);
  return holds ? kPassed : kFailed;
}

// Writes, reads and compares until `rounds` are done (-1: for ever). A byte into `ready` after the first.
int work(const std::filesystem::path& folder, int rounds, int ready = -1) {
  DiskStore store(kBytes, {.folder = folder, .verify = true, .depth = 4, .block = 16 * kPage});
  const TestMemory written(kBytes, 1);
  const TestMemory read(kBytes);
  for (int round = 0; round != rounds; ++round) {
    written.bytes()[0] = static_cast<std::byte>(round);
    store.channel(1).write(0, written.bytes());
    store.channel(0).read(0, read.bytes());
    if (!read.equals(written)) return kFailed;
    if (round == 0 && ready >= 0 && ::write(ready, "r", 1) != 1) return kFailed;
  }
  return kPassed;
}

TEST(DiskProcess, KilledAtAnyInstantTheNextStartCleans) {
  const TestFolder folder;
  const DiskStore living(kPage, {.folder = folder.path()});
  int found = 0;
  for (int i = 0; i < 12; ++i) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    const pid_t child = start([&] { return work(folder.path(), -1, pipe[1]); });
    ::close(pipe[1]);
    if (i % 3 != 0) {  // in the middle of its transfers; every third at some instant of its start
      char byte = 0;
      ASSERT_EQ(::read(pipe[0], &byte, 1), 1);
    }
    ::close(pipe[0]);
    std::this_thread::sleep_for(std::chrono::microseconds(700 * i));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_TRUE(WIFSIGNALED(wait_for(child)));
    found += folder.files() - 1;
    const CapturedLog log;
    const DiskStore next(kPage, {.folder = folder.path()});
    EXPECT_EQ(folder.files(), 2);  // the living one and this
    EXPECT_TRUE(std::filesystem::exists(living.file()));
  }
  EXPECT_GE(found, 8);  // the kills did leave extents behind
}

TEST(DiskProcess, StartsAtOnceDoNotRemoveEachOthersExtents) {
  const TestFolder folder;
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(start([&] {
      for (int j = 0; j < 25; ++j) {
        const DiskStore store(kPage, {.folder = folder.path(), .io_uring = false});
        if (!std::filesystem::exists(store.file())) return kFailed;
      }
      return kPassed;
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(folder.files(), 0);
}

TEST(DiskProcess, StoppedAndContinued) {
  const TestFolder folder;
  for (const bool io_uring : {true, false}) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    const pid_t child = start([&] {
      DiskStore store(kBytes, {.folder = folder.path(), .verify = true, .io_uring = io_uring, .block = 4 * kPage});
      const TestMemory memory(kBytes, 1);
      if (::write(pipe[1], "r", 1) != 1) return kFailed;
      for (int round = 0; round < 150; ++round) {
        store.channel(1).write(0, memory.bytes());
        store.channel(0).read(0, memory.bytes());
      }
      return kPassed;
    });
    ::close(pipe[1]);
    char byte = 0;
    ASSERT_EQ(::read(pipe[0], &byte, 1), 1);
    ::close(pipe[0]);
    for (int i = 0; i < 20; ++i) {
      ::kill(child, SIGSTOP);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ::kill(child, SIGCONT);
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    EXPECT_EQ(wait_for(child), 0);
    EXPECT_EQ(folder.files(), 0);
  }
}

// From now on io_uring_setup fails with `error`.
bool refuse_io_uring(unsigned error) {
  std::array<sock_filter, 4> code = {{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
                                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
                                      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog program{.len = code.size(), .filter = code.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(DiskProcess, FilterOfSystemCallsWithoutIoUring) {
  const TestFolder folder;
  const int code = exit_code([&] {
    if (!refuse_io_uring(EPERM)) return kNotPermitted;
    const CapturedLog log;
    {
      const DiskStore store(kPage, {.folder = folder.path()});
      if (store.uses_io_uring()) return expect(false, "io_uring is refused");
    }
    if (log.lines().empty() || log.lines().back().find("Operation not permitted") == std::string::npos) {
      return expect(false, "the refusal is said");
    }
    return work(folder.path(), 2);
  });
  if (code == kNotPermitted) GTEST_SKIP() << "filters of system calls are not permitted here";
  EXPECT_EQ(code, kPassed);
  EXPECT_EQ(folder.files(), 0);
}

// Gives up the right to lock memory beyond the limit, which root has.
bool drop_lock_right() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, 2> data{};
  if (::syscall(SYS_capget, &header, data.data()) != 0) return false;
  data[0].effective &= ~(1u << CAP_IPC_LOCK);
  data[0].permitted &= ~(1u << CAP_IPC_LOCK);
  data[0].inheritable &= ~(1u << CAP_IPC_LOCK);
  return ::syscall(SYS_capset, &header, data.data()) == 0;
}

TEST(DiskProcess, LockedMemoryOf64KiB) {
  const TestFolder folder;
  const int code = exit_code([&] {
    const rlimit limit{.rlim_cur = 64 << 10, .rlim_max = 64 << 10};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || !drop_lock_right()) return kNotPermitted;
    const CapturedLog log;
    const TestMemory memory(kBytes, 1);
    DiskStore store(kBytes, {.folder = folder.path()});
    store.register_memory(memory.bytes());
    if (store.is_registered()) return expect(false, "1 MiB cannot be registered under a limit of 64 KiB");
    if (log.lines().size() != 1) return expect(false, "the refusal is one line");
    if (log.lines()[0].find("65.5 kB") == std::string::npos) return expect(false, "the limit is said");
    store.channel(0).write(0, memory.bytes());
    const TestMemory back(kBytes);
    store.channel(1).read(0, back.bytes());
    return expect(back.equals(memory), "bytes come back");
  });
  if (code == kNotPermitted) GTEST_SKIP() << "the limit of locked memory cannot be lowered here";
  EXPECT_EQ(code, kPassed);
}

TEST(DiskProcess, ReadOnlyFolder) {
  const TestFolder folder;
  const std::string path = folder.path().string();
  const int code = exit_code([&] {
    if (::geteuid() != 0) {
      if (::chmod(path.c_str(), 0555) != 0) return kNotPermitted;
    } else if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
               ::mount(path.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
               ::mount(nullptr, path.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) != 0) {
      return kNotPermitted;  // root writes where the mode says no: it takes a mount that is read-only
    }
    try {
      DiskStore(kPage, {.folder = path});
    } catch (const UsageError& error) {
      return expect(std::string(error.what()).starts_with("disk.path: no file can be written in " + path),
                    error.what());
    }
    return expect(false, "a read-only folder is refused");
  });
  ::chmod(path.c_str(), 0755);
  if (code == kNotPermitted) GTEST_SKIP() << "root without the right to mount a folder read-only";
  EXPECT_EQ(code, kPassed);
}

TEST(DiskProcess, LimitOfAFilesSize) {
  const TestFolder folder;
  const int code = exit_code([&] {
    const rlimit limit{.rlim_cur = 10 * kPage, .rlim_max = 10 * kPage};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return kNotPermitted;
    DiskStore(10 * kPage, {.folder = folder.path()});
    try {
      DiskStore(11 * kPage, {.folder = folder.path()});
    } catch (const Infeasible& error) {
      return expect(std::string(error.what()).find("ulimit -f") != std::string::npos, error.what());
    }
    return expect(false, "more than a file may have is refused");
  });
  EXPECT_EQ(code, kPassed);
  EXPECT_EQ(folder.files(), 0);
}

// A file system of 4 MiB that says it has more: what is missing shows when room is taken.
TEST(DiskProcess, SmallFileSystemFillsUp) {
  const TestFolder folder;
  const std::string path = folder.path().string();
  const int code = exit_code([&] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("small", path.c_str(), "tmpfs", 0, "size=4m") != 0) {
      return kNotPermitted;
    }
    const auto message = [&](std::unique_ptr<DiskSystem> system) {
      return message_of<Infeasible>([&] { DiskStore(2048 * kPage, {.folder = path}, std::move(system)); });
    };
    if (message(std::make_unique<DiskSystem>()).find("8.39 MB needed") == std::string::npos) return kFailed;
    auto lies = std::make_unique<FaultySystem>();
    lies->free = int64_t{1} << 30;
    if (message(std::move(lies)).find("No space left") == std::string::npos) return kFailed;
    return expect(std::filesystem::is_empty(path), "nothing is left");
  });
  if (code == kNotPermitted) GTEST_SKIP() << "file systems cannot be mounted here";
  EXPECT_EQ(code, kPassed);
}

}  // namespace
}  // namespace lazytrain::runtime
