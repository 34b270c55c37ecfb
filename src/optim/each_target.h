// For tests: runs a body once for every instruction set that is compiled in and that this machine has.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <cstdint>

namespace lazytrain::optim {

template <typename Body>
int for_each_target(const Body& body) {
  const int64_t available = hwy::SupportedTargets() & HWY_TARGETS;
  int count = 0;
  for (int64_t rest = available; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    body();
    ++count;
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return count;
}

}  // namespace lazytrain::optim
