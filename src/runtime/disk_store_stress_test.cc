// Random transfers by several threads, with and without faults, held against a copy in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "runtime/disk_store.h"
#include "runtime/disk_store_testing.h"

namespace lazytrain::runtime {
namespace {

constexpr int64_t kPage = kDiskAlignment;
constexpr int64_t kPages = 192;  // of a lane's part of the extent

class DiskStress : public DiskModes {};
INSTANTIATE_TEST_SUITE_P(Modes, DiskStress, kModes, mode_name);

// One lane's random transfers on its own part of the extent, each read compared with the mirror.
class Lane {
 public:
  // `fresh`: nobody has written to the store yet, so it is known to hold zeros.
  Lane(DiskStore& store, int index, uint64_t seed, bool fresh)
      : store_(store),
        index_(index),
        rng_(seed, static_cast<uint64_t>(index)),
        scratch_(kPages * kPage, seed + 1),
        words_(kPages, fresh ? 0 : kUnknown) {}

  // Returns how many transfers ended in a RunError; their pages are unknown until they are written again.
  int run(int transfers) {
    int failed = 0;
    for (int i = 0; i < transfers; ++i) {
      const int64_t page = below(kPages);
      const int64_t count = 1 + below(kPages - page);
      try {
        below(2) == 0 ? write(page, count) : read(page, count);
      } catch (const RunError&) {
        ++failed;
      }
    }
    return failed;
  }

 private:
  int64_t below(int64_t bound) { return static_cast<int64_t>(rng_.below(next_++, static_cast<uint64_t>(bound))); }
  int64_t offset(int64_t page) const { return (index_ * kPages + page) * kPage; }

  void write(int64_t page, int64_t count) {
    const auto bytes = scratch_.part(0, count * kPage);
    for (int64_t p = 0; p < count; ++p) {  // a page is known by its first word
      const uint64_t word = rng_.bits(next_++);
      std::memcpy(bytes.data() + p * kPage, &word, sizeof(word));
      std::memcpy(bytes.data() + (p + 1) * kPage - 8, &word, sizeof(word));
      words_[static_cast<size_t>(page + p)] = kUnknown;
    }
    store_.channel(index_).write(offset(page), bytes);
    for (int64_t p = 0; p < count; ++p) {
      std::memcpy(&words_[static_cast<size_t>(page + p)], bytes.data() + p * kPage, sizeof(uint64_t));
    }
  }

  void read(int64_t page, int64_t count) {
    const auto bytes = scratch_.part((kPages - count) * kPage, count * kPage);
    store_.channel(index_).read(offset(page), bytes);
    for (int64_t p = 0; p < count; ++p) {
      const uint64_t expected = words_[static_cast<size_t>(page + p)];
      if (expected == kUnknown) continue;
      uint64_t first = 0;
      uint64_t last = 0;
      std::memcpy(&first, bytes.data() + p * kPage, sizeof(first));
      std::memcpy(&last, bytes.data() + (p + 1) * kPage - 8, sizeof(last));
      ASSERT_EQ(first, expected) << "lane " << index_ << " page " << page + p;
      ASSERT_EQ(last, expected) << "lane " << index_ << " page " << page + p;
    }
  }

  static constexpr uint64_t kUnknown = 1;
  DiskStore& store_;
  int index_;
  CounterRng rng_;
  uint64_t next_ = 0;
  TestMemory scratch_;
  std::vector<uint64_t> words_;  // the first and last of each page
};

// All lanes at once, a thread each; returns the transfers that failed.
int run_lanes(DiskStore& store, int lanes, uint64_t seed, int transfers, bool fresh) {
  std::vector<int> failed(static_cast<size_t>(lanes), 0);
  std::vector<std::thread> threads;
  for (int i = 0; i < lanes; ++i) {
    threads.emplace_back([&, i] { failed[static_cast<size_t>(i)] = Lane(store, i, seed, fresh).run(transfers); });
  }
  int all = 0;
  for (int i = 0; i < lanes; ++i) {
    threads[static_cast<size_t>(i)].join();
    all += failed[static_cast<size_t>(i)];
  }
  return all;
}

TEST_P(DiskStress, LanesAtOnceAgreeWithTheirMirrors) {
  for (const int64_t block : {kPage, 3 * kPage, 64 * kPage}) {
    DiskOptions with = options();
    with.channels = 3;
    with.block = block;
    with.depth = block == 3 * kPage ? 1 : 6;
    with.verify = block == kPage;
    DiskStore store(with.channels * kPages * kPage, with);
    EXPECT_EQ(run_lanes(store, with.channels, static_cast<uint64_t>(block), 60, true), 0);
  }
}

// What a disk may do wrong, by a seed: retries, short transfers, and (rarely) errors. Counted, so that the test knows
// that it saw them.
class FaultSchedule {
 public:
  FaultSchedule(uint64_t seed, int64_t sector, bool errors) : rng_(seed, 99), sector_(sector), errors_(errors) {}

  std::optional<int64_t> operator()(const DiskRequest& request) {
    const std::lock_guard lock(mutex_);
    const uint64_t draw = rng_.below(next_++, 100);
    if (draw < 10) return -EINTR;
    if (draw < 15) return -EAGAIN;
    if (draw < 40) {
      return static_cast<int64_t>(rng_.below(next_++, static_cast<uint64_t>(request.length / sector_))) * sector_;
    }
    if (errors_ && draw < 42) {
      ++errors_given_;
      return draw == 40 ? -EIO : -ENOSPC;
    }
    return std::nullopt;
  }
  int errors_given() const { return errors_given_; }

 private:
  std::mutex mutex_;
  CounterRng rng_;
  uint64_t next_ = 0;
  int64_t sector_;  // what a short transfer is a multiple of
  bool errors_;
  int errors_given_ = 0;
};

TEST_P(DiskStress, FaultsBySeedNeverGiveWrongBytes) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const bool errors = seed % 2 == 0;
    FaultSchedule schedule(seed, sector(), errors);
    FaultySystem* system = nullptr;
    DiskOptions with = options();
    with.block = 8 * kPage;
    const auto store = faulty(with.channels * kPages * kPage, system, with);
    system->arm([&](const DiskRequest& request) { return schedule(request); });
    const int failed = run_lanes(*store, with.channels, seed, 30, true);
    system->disarm();
    EXPECT_EQ(failed > 0, schedule.errors_given() > 0) << seed;
    EXPECT_LE(failed, schedule.errors_given()) << seed;
    EXPECT_EQ(schedule.errors_given() > 0, errors) << seed;
    EXPECT_EQ(run_lanes(*store, with.channels, seed + 100, 10, false), 0) << seed;
  }
}

}  // namespace
}  // namespace lazytrain::runtime
