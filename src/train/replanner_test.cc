#include "train/replanner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "plan/heuristics.h"
#include "runtime/run_record.h"
#include "runtime/state_testing.h"

namespace lazytrain::train {
namespace {

using ::testing::HasSubstr;

// A run of a small model in one memory, on a machine whose optimizer is slow, with a plan of the test's choice.
class ReplannerTest : public ::testing::Test {
 protected:
  ReplannerTest() {
    machine_.one_memory = true;
    machine_.disk_bytes = 0;
    config_.batch = shape_.batch;
    config_.micro_batch = shape_.micro_batch;
    config_.seq = shape_.seq;
  }

  PlannedRun planned(const plan::Policy& policy) const {
    PlannedRun run;
    run.program = runtime::testing::compiled(graph_, policy, DType::kBF16, pool_.threads());
    run.machine = machine_;
    run.predicted = plan::simulate(run.program, plan::CostTable(graph_, run.program, machine_));
    return run;
  }
  void begin(const plan::Policy& policy) {
    engine_ = std::make_unique<Engine>(graph_, Workers{}, pool_, planned(policy));
    runtime::testing::randomize(graph_, engine_->state(), 3);
    replanner_ = std::make_unique<Replanner>(config_, graph_, *engine_, pool_.threads());
  }
  // A step as a machine runs it whose host takes `slower` times as long.
  plan::Timeline step(double slower) const {
    hw::Profile actual = machine_;
    actual.host_bandwidth /= slower;
    return plan::simulate(engine_->program(), plan::CostTable(graph_, engine_->program(), actual));
  }
  std::optional<ReplanEvent> after(const plan::Timeline& timeline) {
    return replanner_->after_step(timeline, true, [this] { ++updates_finished_; });
  }
  // The first event of at most so many steps, and the one behind it, which waits for the solver.
  std::optional<ReplanEvent> first_event(const plan::Timeline& timeline, int steps) {
    for (int i = 0; i < steps; ++i) {
      if (auto event = after(timeline)) return event;
    }
    return std::nullopt;
  }
  ReplanEvent decision(const plan::Timeline& timeline) {
    for (;;) {
      if (auto event = after(timeline)) return *event;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  plan::Shape shape_{4, 2, 19};
  RunConfig config_;
  graph::Graph graph_ = model::build_graph(runtime::testing::small_llama(false));
  hw::Profile machine_ = plan::testing::tiered_machine();
  ThreadPool pool_{2};
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Replanner> replanner_;
  int updates_finished_ = 0;
};

TEST_F(ReplannerTest, ChangesToAPlanThatMeasuredTimesMakeFaster) {
  begin(plan::megatrain(graph_, shape_));
  const std::vector<std::byte> before = runtime::testing::state_bytes(engine_->state());
  const plan::Timeline slow = step(8);
  const auto started = first_event(slow, 20);
  ASSERT_TRUE(started);
  EXPECT_EQ(started->metrics["action"], "started");
  EXPECT_THAT(started->words, HasSubstr("planning again"));
  const ReplanEvent event = decision(slow);
  ASSERT_TRUE(event.changed) << event.words;
  EXPECT_EQ(event.metrics["action"], "changed");
  EXPECT_EQ(engine_->program().policy.name, "resident");
  EXPECT_EQ(updates_finished_, 1);
  EXPECT_LT(event.metrics["found_step_s"].get<double>(), 0.97 * event.metrics["present_step_s"].get<double>());
  EXPECT_EQ(engine_->planned().predicted.step_s, event.metrics["found_step_s"].get<double>());
  EXPECT_TRUE(runtime::testing::state_bytes(engine_->state()) == before);
  // The program that runs now is measured on.
  EXPECT_FALSE(first_event(step(8), 200));
}

TEST_F(ReplannerTest, KeepsAPlanThatIsTheFastestAndSaysSo) {
  begin(plan::resident(graph_, shape_));
  const plan::Timeline slow = step(8);
  ASSERT_TRUE(first_event(slow, 20));
  const ReplanEvent event = decision(slow);
  EXPECT_FALSE(event.changed);
  EXPECT_EQ(event.metrics["action"], "kept");
  EXPECT_THAT(event.words, HasSubstr("the plan stays"));
  EXPECT_EQ(updates_finished_, 0);
  EXPECT_FALSE(first_event(slow, 200));  // it is what measured times predict
}

TEST_F(ReplannerTest, KeepsAPlanWhereTheStatesOfBothHaveNoRoom) {
  begin(plan::megatrain(graph_, shape_));
  PlannedRun small = planned(plan::resident(graph_, shape_));
  small.budgets.host = 1000;
  const std::vector<std::byte> before = runtime::testing::state_bytes(engine_->state());
  EXPECT_THAT(engine_->change(std::move(small)), HasSubstr("more than there is"));
  EXPECT_EQ(engine_->program().policy.name, "megatrain");
  EXPECT_TRUE(runtime::testing::state_bytes(engine_->state()) == before);
}

TEST_F(ReplannerTest, LeavesAPlanThatTheUserChoseAndSaysItOnce) {
  config_.plan.policy = "megatrain";
  begin(plan::megatrain(graph_, shape_));
  const plan::Timeline slow = step(8);
  const auto event = first_event(slow, 20);
  ASSERT_TRUE(event);
  EXPECT_FALSE(event->changed);
  EXPECT_TRUE(event->metrics.is_null());
  EXPECT_THAT(event->words, HasSubstr("plan.policy names it (megatrain)"));
  EXPECT_FALSE(first_event(slow, 300));
}

TEST_F(ReplannerTest, OffItOnlyMeasures) {
  config_.plan.replan = false;
  begin(plan::megatrain(graph_, shape_));
  EXPECT_FALSE(first_event(step(8), 300));
  EXPECT_EQ(replanner_->measurements().steps(), 298);
}

TEST_F(ReplannerTest, GivesUpWhatGoesOnInTheBackground) {
  begin(plan::megatrain(graph_, shape_));
  ASSERT_TRUE(first_event(step(8), 20));
  replanner_->stop();
  EXPECT_FALSE(first_event(step(8), 10));
  EXPECT_EQ(engine_->program().policy.name, "megatrain");
}

// Steps under one plan, a change, steps under the other: the bits of a run without it.
TEST_F(ReplannerTest, TrainingGoesOnWithTheSameBits) {
  const auto run = [&](bool change) {
    begin(plan::megatrain(graph_, shape_));
    std::vector<double> losses;
    for (int64_t number = 1; number <= 4; ++number) {
      const auto batch = runtime::testing::random_batch(graph_.vocabulary, shape_, static_cast<uint64_t>(number));
      losses.push_back(engine_->executor().run_step(runtime::testing::tokens_of(batch), nullptr).loss.nll);
      engine_->executor().finish_update(runtime::testing::update_number(number));
      if (change && number == 2) {
        EXPECT_EQ(engine_->change(planned(plan::resident(graph_, shape_))), "");
      }
    }
    EXPECT_GT(engine_->profile().at({"linear", false}).calls, 0);
    return std::pair(losses, runtime::testing::state_bytes(engine_->state()));
  };
  const auto plain = run(false), changed = run(true);
  EXPECT_EQ(changed.first, plain.first);
  EXPECT_NE(plain.first[0], plain.first[3]);
  EXPECT_TRUE(changed.second == plain.second);
}

}  // namespace
}  // namespace lazytrain::train
