#include "train/step_times.h"

#include <gtest/gtest.h>

namespace lazytrain::train {
namespace {

plan::LaneSummary exposed(double seconds) {
  plan::LaneSummary lanes;
  lanes.exposed_s = seconds;
  return lanes;
}
double exposed_of(const plan::LaneSummary& lanes) { return lanes.exposed_s; }

TEST(StepTimes, TotalsAreOfAllStepsAndMediansOfThePlanInForce) {
  StepTimes times;
  EXPECT_EQ(times.median_step_s(), 0);
  for (const double s : {1.0, 3.0, 2.0}) times.add(s, exposed(s / 10));
  EXPECT_EQ(times.median_step_s(), 2);
  EXPECT_EQ(times.median(exposed_of), 0.2);
  times.plan_changed();
  times.add(7, exposed(1));
  EXPECT_EQ(times.median_step_s(), 7);
  EXPECT_EQ(times.steps(), 4);
  EXPECT_EQ(times.seconds(), 13);
}

TEST(StepTimes, OldStepsMakeRoomForNewOnes) {
  StepTimes times;
  for (size_t i = 0; i < StepTimes::kKept; ++i) times.add(1, exposed(1));
  for (size_t i = 0; i < StepTimes::kKept / 2 + 1; ++i) times.add(2, exposed(0));
  EXPECT_EQ(times.median_step_s(), 2);
  EXPECT_EQ(times.median(exposed_of), 0);
  EXPECT_EQ(times.steps(), static_cast<int64_t>(StepTimes::kKept + StepTimes::kKept / 2 + 1));
}

}  // namespace
}  // namespace lazytrain::train
