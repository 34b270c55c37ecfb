#include "train/replan.h"

#include <gtest/gtest.h>

#include "graph/testing.h"
#include "plan/planner.h"
#include "plan/testing.h"

namespace lazytrain::train {
namespace {

using graph::testing::toy_graph;

// Steps of a toy program, as a machine runs them whose links and host are `slower` times slower than its profile says.
class CalibrationTest : public ::testing::Test {
 protected:
  CalibrationTest()
      : program_(plan::step_of(task_, plan::named_policy("every-layer", graph_, task_.shape)).program),
        predicted_(plan::simulate(program_, plan::CostTable(graph_, program_, machine_))) {
    calibration_.begin(program_, machine_, exposed(predicted_));
  }

  plan::Timeline steps_of(double slower) const {
    hw::Profile actual = machine_;
    for (double* rate : {&actual.links.h2d, &actual.links.d2h, &actual.links.joint, &actual.host_bandwidth})
      *rate /= slower;
    return plan::simulate(program_, plan::CostTable(graph_, program_, actual));
  }
  double exposed(const plan::Timeline& timeline) const { return plan::summarize(program_, timeline).exposed_s; }
  // How many of `steps` such steps until it is time; 0: never.
  int64_t steps_until(const plan::Timeline& timeline, int64_t steps) {
    for (int64_t i = 1; i <= steps; ++i) {
      if (calibration_.observe(timeline, true)) return i;
    }
    return 0;
  }

  graph::Graph graph_ = toy_graph(8, false);
  hw::Profile machine_ = plan::testing::tiered_machine();
  plan::PlanningTask task_{graph_, machine_, {8, 4, 128}, DType::kBF16, "fp32", {}, {10, 10, 10}};
  plan::Program program_;
  plan::Timeline predicted_;
  Calibration calibration_{graph_};
};

TEST_F(CalibrationTest, StepsAsPredictedNeverAskForAPlan) {
  EXPECT_EQ(steps_until(predicted_, 200), 0);
  EXPECT_EQ(calibration_.measurements().steps(), 198);  // two warmed up
}

TEST_F(CalibrationTest, FiveDeviatingStepsBehindTheWarmUpAsk) {
  const plan::Timeline slow = steps_of(30);
  ASSERT_GT(exposed(slow) - exposed(predicted_), 0.1 * slow.step_s);
  EXPECT_EQ(steps_until(slow, 100), 2 + 5);
  EXPECT_EQ(calibration_.exposed_s(), exposed(slow));
  EXPECT_EQ(calibration_.step_s(), slow.step_s);
}

// Less exposed time than predicted is a deviation too: the plan could be another one.
TEST_F(CalibrationTest, FasterStepsAskToo) {
  const plan::Timeline slow = steps_of(30);
  calibration_.begin(program_, machine_, exposed(slow));
  ASSERT_GT(exposed(slow) - exposed(predicted_), 0.1 * predicted_.step_s);
  EXPECT_EQ(steps_until(predicted_, 100), 7);
}

TEST_F(CalibrationTest, AStepAsPredictedBetweenThemStartsTheCountAgain) {
  const plan::Timeline slow = steps_of(30);
  EXPECT_EQ(steps_until(slow, 2 + 4), 0);
  EXPECT_FALSE(calibration_.observe(predicted_, true));
  EXPECT_EQ(steps_until(slow, 100), 5);
}

TEST_F(CalibrationTest, ADeviationOfATenthIsNone) {
  plan::Timeline longer = predicted_;
  longer.step_s += 0.09 * longer.step_s;  // all of it exposed
  EXPECT_EQ(steps_until(longer, 100), 0);
  longer = predicted_;
  longer.step_s += 0.13 * longer.step_s;
  EXPECT_EQ(steps_until(longer, 100), 5);
}

TEST_F(CalibrationTest, StepsThatAreNotWholeAreNotMeasured) {
  const plan::Timeline slow = steps_of(30);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(calibration_.observe(slow, false));
  EXPECT_EQ(calibration_.measurements().steps(), 0);
  EXPECT_EQ(steps_until(slow, 100), 7);
}

TEST_F(CalibrationTest, PlansOnceInFiftySteps) {
  const plan::Timeline slow = steps_of(30);
  EXPECT_EQ(steps_until(slow, 100), 7);
  calibration_.planning();
  EXPECT_EQ(steps_until(slow, 100), 50);
  calibration_.planning();
  for (int i = 0; i < 47; ++i) calibration_.observe(slow, false);  // steps that are not measured count
  EXPECT_EQ(steps_until(slow, 100), 5);
}

TEST_F(CalibrationTest, APlanThatStaysIsHeldAgainstItsMeasuredTimes) {
  const plan::Timeline slow = steps_of(30);
  ASSERT_EQ(steps_until(slow, 100), 7);
  calibration_.planning();
  const plan::Timeline now = calibration_.simulate_measured();
  EXPECT_NEAR(now.step_s, slow.step_s, 0.1 * slow.step_s);
  calibration_.expect(exposed(now));
  EXPECT_EQ(steps_until(slow, 200), 0);
  EXPECT_EQ(steps_until(predicted_, 200), 5);  // the machine is itself again
}

TEST_F(CalibrationTest, AnotherPlanWarmsUpAgain) {
  const plan::Timeline slow = steps_of(30);
  ASSERT_EQ(steps_until(slow, 100), 7);
  const int64_t measured = calibration_.measurements().steps();
  const plan::Program other = plan::step_of(task_, plan::named_policy("megatrain", graph_, task_.shape)).program;
  const plan::Timeline steps = plan::simulate(other, plan::CostTable(graph_, other, machine_));
  calibration_.begin(other, machine_, plan::summarize(other, steps).exposed_s);
  EXPECT_EQ(steps_until(steps, 2), 0);
  EXPECT_EQ(calibration_.measurements().steps(), measured);
  EXPECT_EQ(steps_until(steps, 100), 0);
  EXPECT_EQ(calibration_.measurements().steps(), measured + 100);
}

TEST(Replan, AChangeMustBeWorthMoreThanThreePercent) {
  EXPECT_TRUE(is_worth_a_change(1.0, 0.96));
  EXPECT_FALSE(is_worth_a_change(1.0, 0.975));
  EXPECT_FALSE(is_worth_a_change(1.0, 1.5));
}

}  // namespace
}  // namespace lazytrain::train
