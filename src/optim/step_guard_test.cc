#include "optim/step_guard.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "base/error.h"

namespace lazytrain::optim {
namespace {

constexpr GradientSum kGood{4.0, true};
constexpr GradientSum kBad{std::numeric_limits<double>::infinity(), false};

bool step(StepGuard& guard, int64_t number, bool good) {
  guard.observe(kGood, "head");
  guard.observe(good ? kGood : kBad, "layer 3 (mlp.up_proj.weight)");
  guard.observe(good ? kGood : kBad, "embedding");
  return guard.admit(number);
}

TEST(StepGuard, SkipsAndCounts) {
  StepGuard guard;
  EXPECT_TRUE(step(guard, 1, true));
  EXPECT_EQ(guard.sum().sum_of_squares, 12.0);
  EXPECT_EQ(guard.culprit(), "");
  EXPECT_FALSE(step(guard, 2, false));
  EXPECT_EQ(guard.culprit(), "layer 3 (mlp.up_proj.weight)");
  EXPECT_FALSE(step(guard, 3, false));
  EXPECT_TRUE(step(guard, 4, true));  // ends the row
  EXPECT_EQ(guard.sum().sum_of_squares, 12.0);
  EXPECT_EQ(guard.culprit(), "");
  EXPECT_FALSE(step(guard, 5, false));
  EXPECT_FALSE(step(guard, 6, false));
  EXPECT_EQ(guard.counts().skipped, 4);
  EXPECT_EQ(guard.counts().in_a_row, 2);
}

TEST(StepGuard, ThreeInARowAbortWithTheName) {
  StepGuard guard;
  EXPECT_FALSE(step(guard, 7, false));
  EXPECT_FALSE(step(guard, 8, false));
  try {
    step(guard, 9, false);
    FAIL();
  } catch (const RunError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("step 9"), std::string::npos) << message;
    EXPECT_NE(message.find("layer 3 (mlp.up_proj.weight)"), std::string::npos) << message;
  }
}

TEST(StepGuard, GoesOnFromSavedCounts) {
  StepGuard guard({.skipped = 5, .in_a_row = 2});
  EXPECT_THROW(step(guard, 10, false), RunError);
  EXPECT_EQ(guard.counts().skipped, 6);
}

TEST(StepGuard, AStepWithoutPiecesIsFinite) {
  StepGuard guard;
  EXPECT_FALSE(step(guard, 1, false));
  EXPECT_TRUE(guard.admit(2));
}

}  // namespace
}  // namespace lazytrain::optim
