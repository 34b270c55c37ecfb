#include "train/background.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace lazytrain::train {
namespace {

template <typename T>
void wait_for(const Background<T>& background) {
  while (!background.done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(Background, GivesWhatItsFunctionReturns) {
  Background<std::string> background([](const std::stop_token&) { return std::string("found"); });
  wait_for(background);
  EXPECT_EQ(background.take(), "found");
}

TEST(Background, GivesAnExceptionOn) {
  Background<int> background([](const std::stop_token&) -> int { throw std::runtime_error("no luck"); });
  wait_for(background);
  EXPECT_THROW(background.take(), std::runtime_error);
}

// Without being asked to stop, the function would never end, nor would this test.
TEST(Background, DestroyedItAsksToStop) {
  std::atomic<bool> ended = false;
  {
    Background<int> background([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ended = true;
      return 0;
    });
    EXPECT_FALSE(background.done());
  }
  EXPECT_TRUE(ended);
}

TEST(Background, RunsAtTheLowestPriorityAndLeavesTheCallersAlone) {
  const int before = ::getpriority(PRIO_PROCESS, 0);
  Background<int> background([](const std::stop_token&) {
    int of_child = 0;  // as solvers start threads
    std::thread([&] { of_child = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid())); }).join();
    return of_child;
  });
  wait_for(background);
  EXPECT_EQ(background.take(), 19);
  EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), before);
}

}  // namespace
}  // namespace lazytrain::train
