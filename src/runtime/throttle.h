// Holds transfers to the rates of an emulated machine's links.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "base/function_ref.h"
#include "hw/profile.h"
#include "plan/words.h"

namespace lazytrain::runtime {

// What an emulated machine's lanes may do, in real seconds here.
struct LaneRates {
  hw::Links links;                   // bytes a second; 0: as fast as they can
  std::vector<double> host_seconds;  // by instruction: what an update or an accumulation on the host lasts at least
};

class Throttle {
 public:
  explicit Throttle(const LaneRates& rates) : rates_(rates) {}

  // Runs `work` on a lane and returns no sooner than `seconds` after it could begin.
  void hold(plan::Lane lane, double seconds, FunctionRef<void()> work);

  // Runs `copy(begin, end)` over the bytes of a transfer in pieces, none of them done before the lane's link could have
  // moved it. While both directions between device and host are busy each has its share of their joint rate. Returns
  // when the whole transfer would have ended on the link.
  void transfer(plan::Lane lane, int64_t bytes, FunctionRef<void(int64_t begin, int64_t end)> copy);

 private:
  using Clock = std::chrono::steady_clock;
  double rate(plan::Lane lane) const;

  LaneRates rates_;
  std::array<std::atomic<bool>, plan::kLanes> busy_ = {};
  std::array<Clock::time_point, plan::kLanes> free_at_ = {};  // each used by its lane alone
};

}  // namespace lazytrain::runtime
