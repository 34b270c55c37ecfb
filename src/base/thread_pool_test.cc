#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lazytrain {
namespace {

TEST(PartOf, CoversEverythingOnceInOrder) {
  for (const int64_t total : {0, 1, 7, 64, 100, 1000}) {
    for (const int64_t parts : {1, 2, 3, 8, 13}) {
      for (const int64_t grain : {1, 3, 16, 2000}) {
        int64_t covered = 0, smallest = INT64_MAX, largest = 0;
        for (int64_t i = 0; i < parts; ++i) {
          const Part part = part_of(total, parts, i, grain);
          ASSERT_EQ(part.begin, covered) << total << " " << parts << " " << grain << " " << i;
          ASSERT_GE(part.end, part.begin);
          ASSERT_TRUE(part.begin % grain == 0 || part.begin == total);
          smallest = std::min(smallest, part.end - part.begin);
          largest = std::max(largest, part.end - part.begin);
          covered = part.end;
        }
        ASSERT_EQ(covered, total);
        ASSERT_LE(largest - smallest, 2 * grain);  // the last part may be cut short as well
      }
    }
  }
}

TEST(ThreadPool, RunsEveryIndexOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t count : {0, 1, 2, 17, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
      pool.run(count, [&](int64_t i) { ++seen[static_cast<size_t>(i)]; });
      for (const auto& times : seen) ASSERT_EQ(times, 1);
    }
  }
}

TEST(ThreadPool, UsesItsThreadsAtTheSameTime) {
  ThreadPool pool(3);
  std::atomic<int> inside = 0;
  pool.run(3, [&](int64_t) {
    ++inside;
    while (inside < 3) std::this_thread::yield();  // ends only when all three run together
  });
  EXPECT_EQ(inside, 3);
}

TEST(ThreadPool, CutsByThePoolSizeAlone) {
  ThreadPool pool(4);
  for (const int64_t total : {0, 1, 63, 64, 65, 1000}) {
    std::vector<std::atomic<int>> seen(static_cast<size_t>(total));
    std::atomic<int> parts = 0;
    pool.parallel_for(total, 64, [&](int64_t begin, int64_t end) {
      EXPECT_EQ(begin % 64, 0);
      EXPECT_LT(begin, end);
      ++parts;
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    EXPECT_EQ(parts, std::min<int64_t>(4, (total + 63) / 64));
    for (const auto& times : seen) ASSERT_EQ(times, 1);
  }
}

TEST(ThreadPool, RethrowsAfterAllPartsEnded) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::atomic<int> ran = 0;
    const auto body = [&](int64_t i) {
      ++ran;
      if (i == 2) throw std::runtime_error("part 2");
    };
    try {
      pool.run(20, body);
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "part 2");
    }
    EXPECT_EQ(ran, 20) << threads << " threads";
    ran = 0;
    pool.run(5, [&](int64_t) { ++ran; });  // still works
    EXPECT_EQ(ran, 5);
  }
}

TEST(ThreadPool, ServesTwoClientsAtOnce) {
  ThreadPool pool(3);
  const auto client = [&](int64_t& sum) {
    for (int round = 0; round < 200; ++round) {
      std::atomic<int64_t> part = 0;
      pool.run(37, [&](int64_t i) { part += i; });
      sum += part;
    }
  };
  int64_t first = 0, second = 0;
  std::thread other([&] { client(first); });
  client(second);
  other.join();
  EXPECT_EQ(first, 200 * 666);
  EXPECT_EQ(second, 200 * 666);
}

TEST(ThreadPool, KeepsErrorsWithTheirClient) {
  ThreadPool pool(3);
  int failures = 0;
  std::thread failing([&] {
    for (int round = 0; round < 200; ++round) {
      try {
        pool.run(9, [](int64_t i) {
          if (i == 4) throw std::runtime_error("mine");
        });
      } catch (const std::runtime_error&) {
        ++failures;
      }
    }
  });
  for (int round = 0; round < 200; ++round) {
    EXPECT_NO_THROW(pool.run(9, [](int64_t) {}));
  }
  failing.join();
  EXPECT_EQ(failures, 200);
}

}  // namespace
}  // namespace lazytrain
