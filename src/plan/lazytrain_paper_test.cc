#include "plan/lazytrain_paper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "graph/testing.h"
#include "plan/testing.h"
#include "plan/windows.h"

namespace lazytrain::plan {
namespace {

using graph::testing::toy_graph;
using ::testing::Contains;
using ::testing::IsEmpty;

class LazyTrainPaperTest : public ::testing::Test {
 protected:
  static hw::Profile machine() {
    hw::Profile profile = testing::tiered_machine();
    profile.gemm_flops = 2e9;
    profile.links = {2e8, 2e8, 4e8, 5e7, 5e7};
    return profile;
  }
  PlanningTask task(const TierGb& budget) const { return {graph, here, {8, 8, 128}, DType::kBF16, "fp32", {}, budget}; }
  static double gb(const Program& program, Tier tier) {
    return static_cast<double>(program.tier_bytes[static_cast<size_t>(tier)]) / 1e9;
  }
  static int checkpoints(const Policy& policy, Tier home) {
    return static_cast<int>(std::count(policy.boundaries.begin(), policy.boundaries.end(), BoundaryPolicy{true, home}));
  }
  static int dropped(const Policy& policy) {
    return static_cast<int>(std::count_if(policy.boundaries.begin(), policy.boundaries.end(),
                                          [](const BoundaryPolicy& b) { return !b.checkpoint; }));
  }
  graph::Graph graph = toy_graph(12, false);
  hw::Profile here = machine();
};

TEST_F(LazyTrainPaperTest, WithRoomEveryBoundaryStaysOnTheDevice) {
  const PlanningTask with = task({10, 10, 0});
  const auto step = lazytrain_paper_step(with, {});
  ASSERT_TRUE(step);
  const Policy& policy = step->program.policy;
  EXPECT_EQ(policy.name, "lazytrain-paper");
  EXPECT_EQ(checkpoints(policy, Tier::kDevice), 13);
  EXPECT_TRUE(policy.recompute_whole_unit);
  EXPECT_FALSE(policy.recompute_whole_block);
  EXPECT_FALSE(policy.update_chases_forward);
  for (const UnitPolicy& unit : policy.units) EXPECT_EQ(unit, UnitPolicy());  // streamed, nothing retained
  // A layer runs forward, whole once more, and backward: what an engine without slices pays without block recompute.
  const PlannedStep zero3 = step_of(with, named_policy("zero3-offload", graph, with.shape));
  EXPECT_DOUBLE_EQ(step->timeline.step_s, zero3.timeline.step_s);
}

// Less and less of each tier: away first, then recomputed, and the program keeps to the budget each time.
TEST_F(LazyTrainPaperTest, LeavesTheDeviceThenRecomputes) {
  const auto all = lazytrain_paper_step(task({10, 10, 0}), {});
  ASSERT_TRUE(all);
  const double device = gb(all->program, Tier::kDevice), host = gb(all->program, Tier::kHost);
  const PlanningTask tight = task({0.8 * device, 10, 0});
  const auto away = lazytrain_paper_step(tight, {});
  ASSERT_TRUE(away);
  EXPECT_TRUE(fits(tight, away->program));
  EXPECT_THAT(validate(away->program), IsEmpty());
  EXPECT_GT(checkpoints(away->program.policy, Tier::kHost), 0);

  const PlanningTask tighter = task({0.8 * device, 1.001 * host, 0});
  const auto again = lazytrain_paper_step(tighter, {});
  ASSERT_TRUE(again);
  EXPECT_TRUE(fits(tighter, again->program));
  EXPECT_GT(dropped(again->program.policy), 0);
  EXPECT_LT(checkpoints(again->program.policy, Tier::kHost), checkpoints(away->program.policy, Tier::kHost));
  // The last unit of a block is not run a second time.
  const auto windows = windows_of(again->program.policy, static_cast<int>(graph.units.size()));
  EXPECT_EQ(
      std::count_if(windows.begin(), windows.end(), [](const Window& w) { return w.pass == Pass::kBlockRecompute; }),
      dropped(again->program.policy));
  EXPECT_GT(again->timeline.step_s, all->timeline.step_s);

  EXPECT_FALSE(lazytrain_paper_step(task({0.05 * device, 10, 0}), {}));
  EXPECT_FALSE(lazytrain_paper_step(task({10, 0.5 * host, 0}), {}));
}

TEST_F(LazyTrainPaperTest, GivenCapacitiesAreKept) {
  const PlanningTask with = task({10, 10, 1});
  const double a = make_instance(with).boundary_gb[0];
  const auto step = lazytrain_paper_step(with, {}, TierGb{4.5 * a, 2.5 * a, 3.5 * a});
  ASSERT_TRUE(step);
  EXPECT_EQ(checkpoints(step->program.policy, Tier::kDevice), 4);
  EXPECT_EQ(checkpoints(step->program.policy, Tier::kHost), 2);
  EXPECT_LE(checkpoints(step->program.policy, Tier::kDisk), 3);
}

TEST_F(LazyTrainPaperTest, VeryDeepModelsAreRefused) {
  graph = toy_graph(kMaxPaperLayers + 1, false);
  EXPECT_THROW(lazytrain_paper_step(task({10, 10, 0}), {}), UsageError);
}

TEST_F(LazyTrainPaperTest, IsOneOfTheNamedSteps) {
  EXPECT_THAT(step_names(), Contains("lazytrain-paper"));
  const auto step = named_step(task({10, 10, 0}), "lazytrain-paper", false);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->program.policy.name, "lazytrain-paper");
  EXPECT_FALSE(named_step(task({1e-6, 10, 0}), "lazytrain-paper", true));
}

}  // namespace
}  // namespace lazytrain::plan
