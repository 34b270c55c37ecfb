#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/json.h"

namespace lazytrain::optim {
namespace {

TEST(Schedule, EqualsTransformersAtEveryIndex) {
  const auto path = std::filesystem::path(LAZYTRAIN_SOURCE_DIR) / "src/optim/testdata/schedules.json";
  const Json golden = read_json(path);
  ASSERT_FALSE(golden.at("cases").empty());
  for (const Json& c : golden.at("cases")) {
    const Schedule schedule{.kind = schedule_kind_from_name(c.at("schedule").get<std::string>()),
                            .lr = c.at("lr").get<double>(),
                            .warmup = c.at("warmup").get<double>()};
    const auto total = c.at("total_steps").get<int64_t>();
    EXPECT_EQ(warmup_steps(schedule.warmup, total), c.at("warmup_steps").get<int64_t>());
    int64_t index = 0;
    for (const Json& lr : c.at("lrs")) {
      // Relative to the peak: near its end the cosine is a difference of almost equal numbers.
      EXPECT_NEAR(lr_at(schedule, index, total), lr.get<double>(), 1e-15 * schedule.lr)
          << c.at("schedule") << " warmup " << schedule.warmup << " total " << total << " index " << index;
      ++index;
    }
  }
}

TEST(Schedule, WarmupBelowOneIsARatioRoundedUp) {
  EXPECT_EQ(warmup_steps(0.0, 100), 0);
  EXPECT_EQ(warmup_steps(0.03, 100), 3);
  EXPECT_EQ(warmup_steps(0.03, 101), 4);
  EXPECT_EQ(warmup_steps(0.999, 10), 10);
  EXPECT_EQ(warmup_steps(1.0, 100), 1);
  EXPECT_EQ(warmup_steps(2.9, 100), 2);
  EXPECT_EQ(warmup_steps(500.0, 100), 500);
  EXPECT_GT(warmup_steps(1e300, 100), 1'000'000'000);
}

TEST(Schedule, StartsAtZeroUnderWarmupAndNeverGoesBelowZero) {
  for (const auto kind : {ScheduleKind::kConstant, ScheduleKind::kLinear, ScheduleKind::kCosine}) {
    EXPECT_EQ(lr_at({kind, 1e-3, 5}, 0, 20), 0.0);
    EXPECT_DOUBLE_EQ(lr_at({kind, 1e-3, 5}, 4, 20), 8e-4);
    EXPECT_EQ(lr_at({kind, 1e-3, 5}, 5, 20), 1e-3);
    EXPECT_EQ(lr_at({kind, 1e-3, 0}, 0, 20), 1e-3);
    EXPECT_GE(lr_at({kind, 1e-3, 5}, 30, 20), 0.0);
    EXPECT_DOUBLE_EQ(lr_at({kind, 1e-3, 50}, 19, 20), 1e-3 * 19 / 50);  // a run shorter than its warm-up
  }
  EXPECT_EQ(lr_at({ScheduleKind::kLinear, 1e-3, 5}, 20, 20), 0.0);
  EXPECT_EQ(lr_at({ScheduleKind::kLinear, 1e-3, 5}, 25, 20), 0.0);
}

TEST(Schedule, NamesAndRanges) {
  for (const char* name : {"constant", "linear", "cosine"}) {
    EXPECT_EQ(name_of(schedule_kind_from_name(name)), name);
  }
  try {
    schedule_kind_from_name("cosin");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("'cosine'"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(check(Schedule{.lr = 0.0}));
  EXPECT_THROW(check(Schedule{.lr = -1e-5}), UsageError);
  EXPECT_THROW(check(Schedule{.lr = 1e-5, .warmup = -1}), UsageError);
  EXPECT_THROW(check(Schedule{.lr = std::numeric_limits<double>::infinity()}), UsageError);
}

}  // namespace
}  // namespace lazytrain::optim
