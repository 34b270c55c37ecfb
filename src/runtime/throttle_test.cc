#include "runtime/throttle.h"

#include <gtest/gtest.h>

namespace lazytrain::runtime {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Every link's rate is of bytes, and no link is quicker than it.
TEST(Throttle, TransfersLastAsLongAsTheirBytes) {
  const LaneRates rates{.links = {.h2d = 1e7, .d2h = 2e7, .joint = 3e7, .disk_read = 5e6, .disk_write = 4e6},
                        .host_seconds = {}};
  const std::pair<plan::Lane, double> lanes[] = {{plan::Lane::kH2D, rates.links.h2d},
                                                 {plan::Lane::kD2H, rates.links.d2h},
                                                 {plan::Lane::kDiskRead, rates.links.disk_read},
                                                 {plan::Lane::kDiskWrite, rates.links.disk_write}};
  for (const auto& link : lanes) {
    const plan::Lane lane = link.first;  // clang 14 captures no structured binding
    Throttle throttle(rates);
    constexpr int64_t kBytes = 300'001;
    int64_t moved = 0;
    const double seconds = seconds_of([&] {
      throttle.transfer(lane, kBytes, [&](int64_t begin, int64_t end) {
        EXPECT_EQ(begin, moved);
        EXPECT_EQ(begin % 4096, 0) << "a disk transfer would be cut";
        moved = end;
      });
    });
    EXPECT_EQ(moved, kBytes);
    EXPECT_GE(seconds, 0.98 * kBytes / link.second) << name_of(lane);
  }
}

TEST(Throttle, WorkIsHeldToItsSeconds) {
  Throttle throttle({});
  bool done = false;
  EXPECT_GE(seconds_of([&] { throttle.hold(plan::Lane::kHost, 0.03, [&] { done = true; }); }), 0.029);
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace lazytrain::runtime
