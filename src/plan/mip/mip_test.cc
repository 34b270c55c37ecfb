#include "plan/mip/mip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "plan/mip/solver.h"
#include "plan/mip/watchdog.h"

namespace lazytrain::plan {
namespace {

using ::testing::HasSubstr;

// max 5a + 4b + 3c (as a minimum), 2a + 3b + c <= 5, 4a + b + 2c in [1, 11], integers up to 2; d free, d = a - b.
Mip knapsack() {
  Mip mip;
  const int a = mip.add_binary("a", -5), b = mip.add_binary("b", -4), c = mip.add_binary("c", -3);
  for (const int column : {a, b, c}) mip.columns[static_cast<size_t>(column)].upper = 2;
  const int d = mip.add_column("d", -kInfinity, kInfinity, 0.5);
  mip.at_most("weight", LinearSum().add(a, 2).add(b, 3).add(c, 1), 5);
  mip.add_row("range", 1, LinearSum().add(a, 4).add(b, 1).add(c, 2), 11);
  mip.add_row("equal", 0, LinearSum().add(a, 1).add(b, -1).add(d, -1), 0);
  return mip;
}
constexpr double kKnapsack = -12;  // a = 2, c = 1, d = 2: -10 - 3 + 1

TEST(Mip, SumsAddUpEqualColumns) {
  Mip mip;
  const int a = mip.add_column("a", 0, 1, 1);
  LinearSum sum;
  sum.add(a, 2).add(a, 3).add(-1, 7).add(4.0);
  mip.at_most("row", sum, 10);
  ASSERT_EQ(mip.rows.size(), 1u);
  EXPECT_EQ(mip.rows[0].entries, (std::vector<std::pair<int, double>>{{a, 5}}));
  EXPECT_EQ(mip.rows[0].upper, 6);
  mip.at_most("nothing", LinearSum().add(a, 1).add(a, -1), 1);
  EXPECT_EQ(mip.rows.size(), 1u);
  mip.at_most("impossible", LinearSum().add(2.0), 1);
  EXPECT_EQ(mip.rows.size(), 2u);
}

TEST(Mip, ViolationSeesBoundsRowsAndIntegrality) {
  const Mip mip = knapsack();
  EXPECT_EQ(mip.max_violation({2, 0, 1, 2}), 0);
  EXPECT_EQ(mip.objective({2, 0, 1, 2}), kKnapsack);
  EXPECT_GT(mip.max_violation({2.5, 0, 0, 2.5}), 0.1);  // above its bound
  EXPECT_GT(mip.max_violation({1.5, 0, 1, 1.5}), 0.4);  // no integer
  EXPECT_GT(mip.max_violation({2, 1, 1, 1}), 0.1);      // too heavy
  EXPECT_GT(mip.max_violation({0, 0, 0, 1}), 0.1);      // not equal
  EXPECT_EQ(mip.max_violation({0, 0, 0}), kInfinity);
  EXPECT_EQ(mip.max_violation({0, 0, NAN, 0}), kInfinity);
}

TEST(Mip, MpsHasEveryKindOfBoundAndRow) {
  const std::string text = mps_text(knapsack());
  for (const char* line :
       {" L R0\n", " G R1\n", " E R2\n", " C0 OBJ -5\n", " C2 R1 2\n", " RHS R0 5\n", " RNG R1 10\n", " FR BND C3\n",
        " UP BND C0 2\n", "'INTORG'", "'INTEND'", "ENDATA\n", "NAME lazytrain FREE\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

class SolverTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    try {
      require_solver(GetParam());
    } catch (const UsageError& e) {
      GTEST_SKIP() << e.what();
    }
  }
  MipResult solve(const Mip& mip, const std::vector<double>& start = {}) {
    return solve_mip(mip, start, {GetParam(), 60, 0});
  }
};
INSTANTIATE_TEST_SUITE_P(Solvers, SolverTest, ::testing::Values("highs", "scip"),
                         [](const auto& chosen) { return chosen.param; });

// SCIP gets every program as an MPS file: that both agree is the proof that the file says what was meant.
TEST_P(SolverTest, FindsTheOptimum) {
  const MipResult result = solve(knapsack());
  EXPECT_EQ(result.status, MipStatus::kGapReached);
  EXPECT_NEAR(result.objective, kKnapsack, 1e-6);
  EXPECT_NEAR(result.bound, kKnapsack, 1e-6);
  EXPECT_EQ(result.solver, GetParam());
}

TEST_P(SolverTest, KeepsAGoodStart) {
  const MipResult result = solve(knapsack(), {2, 0, 1, 2});
  EXPECT_EQ(result.status, MipStatus::kGapReached);
  EXPECT_NEAR(result.objective, kKnapsack, 1e-6);
}

TEST_P(SolverTest, ImprovesABadStart) { EXPECT_NEAR(solve(knapsack(), {0, 1, 0, -1}).objective, kKnapsack, 1e-6); }

TEST_P(SolverTest, ProvesThatNothingFits) {
  Mip mip = knapsack();
  mip.at_least("too much", LinearSum().add(0, 1).add(1, 1), 4.5);
  const MipResult result = solve(mip);
  EXPECT_EQ(result.status, MipStatus::kInfeasible);
  EXPECT_TRUE(result.values.empty());
}

TEST_P(SolverTest, SolvesALinearProgram) {
  Mip mip = knapsack();
  for (MipColumn& column : mip.columns) column.integer = false;
  const MipResult result = solve(mip);
  EXPECT_EQ(result.status, MipStatus::kGapReached);
  EXPECT_LE(result.objective, kKnapsack + 1e-9);
  EXPECT_NEAR(result.bound, result.objective, 1e-6);
}

TEST_P(SolverTest, SaysNothing) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  solve(knapsack(), {0, 1, 0, -1});
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(Solver, GreedyReturnsTheStart) {
  const MipResult result = solve_mip(knapsack(), {0, 1, 0, -1}, {"greedy", 60, 0});
  EXPECT_EQ(result.values, (std::vector<double>{0, 1, 0, -1}));
  EXPECT_EQ(result.bound, -kInfinity);
}

TEST(Solver, NamesTheNearest) {
  try {
    check_solver_name("hihgs", "plan.solver");
    FAIL() << "taken";
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("plan.solver: 'hihgs' is no solver, did you mean 'highs'?"));
  }
}

TEST(Solver, ScipThatIsNotThereIsAnErrorThatSaysWhatToDo) {
  const std::filesystem::path empty = std::filesystem::temp_directory_path() / fmt::format("no-scip-{}", getpid());
  std::filesystem::create_directory(empty);
  ASSERT_EQ(setenv("LAZYTRAIN_SCIP", empty.c_str(), 1), 0);
  EXPECT_EQ(scip_library(), "");
  EXPECT_THROW(require_solver("scip"), UsageError);
  EXPECT_THROW(solve_mip(knapsack(), {}, {"scip", 60, 0}), UsageError);
  write_file(empty / "libscip.so", "no library");
  EXPECT_THROW(solve_mip(knapsack(), {}, {"scip", 60, 0}), UsageError);
  unsetenv("LAZYTRAIN_SCIP");
  std::filesystem::remove_all(empty);
}

TEST(Watchdog, KeepsTheBestSolutionAndBound) {
  const MipResult result = run_watched(
      [](SolverTask& task) {
        task.improve({1}, 5);
        task.improve({2}, 7);  // worse
        task.raise_bound(3);
        task.raise_bound(2);
        task.end(MipStatus::kGapReached, "done");
      },
      {0}, 9, 60, 1);
  EXPECT_EQ(result.status, MipStatus::kGapReached);
  EXPECT_EQ(result.values, std::vector<double>{1});
  EXPECT_EQ(result.objective, 5);
  EXPECT_EQ(result.bound, 3);
}

TEST(Watchdog, AsksAfterTheLimit) {
  const MipResult result = run_watched(
      [](SolverTask& task) {
        while (!task.should_stop()) usleep(1000);
        task.improve({1}, 5);
        task.end(MipStatus::kTimeLimit, "asked to stop");
      },
      {}, 0, 0.05, 60);
  EXPECT_EQ(result.words, "asked to stop");
  EXPECT_EQ(result.values, std::vector<double>{1});
  EXPECT_LT(result.seconds, 30);
}

TEST(Watchdog, AsksWhenItIsAskedToStop) {
  std::stop_source source;
  std::jthread asker([&] {
    usleep(20000);
    source.request_stop();
  });
  const MipResult result = run_watched(
      [](SolverTask& task) {
        while (!task.should_stop()) usleep(1000);
        task.improve({1}, 5);
        task.end(MipStatus::kTimeLimit, "asked to stop");
      },
      {}, 0, 1e6, 60, source.get_token());  // without being asked it would run for days
  EXPECT_EQ(result.words, "asked to stop");
  EXPECT_EQ(result.values, std::vector<double>{1});
}

TEST(Watchdog, ASolverThatFailsIsAFault) {
  const MipResult result = run_watched([](SolverTask&) { throw RunError("out of luck"); }, {1}, 2, 60, 1);
  EXPECT_EQ(result.status, MipStatus::kFault);
  EXPECT_EQ(result.words, "out of luck");
  EXPECT_EQ(result.values, std::vector<double>{1});
}

MipResult run_deaf(double seconds) {
  return run_watched(
      [seconds](SolverTask& task) {
        task.improve({4}, 1);
        for (double slept = 0; slept < seconds; slept += 0.01) usleep(10000);  // listens to nobody
      },
      {3}, 2, 0.05, 0.05);
}

TEST(Watchdog, GoesOnWithoutASolverThatDoesNotListen) {
  const MipResult result = run_deaf(1.0);
  EXPECT_EQ(result.status, MipStatus::kTimeLimit);
  EXPECT_EQ(result.values, std::vector<double>{4});
  EXPECT_LT(result.seconds, 0.8);
}

TEST(WatchdogDeathTest, TheProcessEndsWithItsStatusAllTheSame) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    run_deaf(1000);
    std::exit(7);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace lazytrain::plan
