#include "runtime/probe_timing.h"

#include <algorithm>
#include <limits>

namespace lazytrain::runtime {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

double seconds_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return since(begin);
}

double fastest_seconds(double budget_s, const std::function<void()>& work) {
  work();
  double fastest = std::numeric_limits<double>::max();
  const auto begin = Clock::now();
  for (int i = 0; i < 3 || since(begin) < budget_s; ++i) fastest = std::min(fastest, seconds_of(work));
  return fastest;
}

}  // namespace lazytrain::runtime
