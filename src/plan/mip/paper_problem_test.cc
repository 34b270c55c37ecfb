#include "plan/mip/paper_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/rng.h"
#include "optim/state_layout.h"

namespace lazytrain::plan {
namespace {

using ::testing::HasSubstr;
using Homes = std::vector<std::optional<Tier>>;

constexpr double kGib = 1.073741824;

// The published lists of the 27B run.
const std::vector<int> kDevice = {0,  10, 15, 16, 20, 22, 23, 24, 28, 29, 32, 36, 39, 40, 41,
                                  42, 43, 44, 48, 50, 51, 52, 56, 57, 58, 59, 60, 62, 63, 64};
const std::vector<int> kHost = {1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 26, 27, 30, 31, 33, 34, 35, 38, 49};
const std::vector<int> kDisk = {21};
const std::vector<int> kRecomputed = {6, 17, 18, 19, 25, 37, 45, 46, 47, 53, 54, 55, 61};

std::vector<double> all(int count, double value) { return std::vector<double>(static_cast<size_t>(count), value); }

// 70 ms windows: what the published trace of boundary 21 fills (0.2345 GB at 3.35 GB/s, 0.198 GB at 2.83 GB/s).
PaperInstance published_27b() {
  PaperInstance in;
  in.name = "27B";
  in.layers = 64;
  in.boundary_gb = all(65, 0.703 * kGib);
  in.recompute_ms = all(64, 14);
  in.out_window_ms = in.back_window_ms = all(64, 70);
  in.gradient_gb = in.parameter_gb = all(64, 0);
  in.links_gbs = {12, 12, 0, 2.83, 3.35};
  in.budget_gb = {21.55 * kGib, 15 * kGib, 32 * kGib};
  in.max_block = 4;
  return in;
}

PaperFixed published_restriction() {
  PaperFixed fixed{{}, kDevice};
  for (const auto* list : {&kDevice, &kHost, &kDisk}) {
    fixed.checkpoints.insert(fixed.checkpoints.end(), list->begin(), list->end());
  }
  std::sort(fixed.checkpoints.begin(), fixed.checkpoints.end());
  return fixed;
}

TEST(PaperProblem, PublishedListsAreTheWholeOfTheBoundaries) {
  std::vector<int> every = published_restriction().checkpoints;
  EXPECT_EQ(every.size(), 52u);
  every.insert(every.end(), kRecomputed.begin(), kRecomputed.end());
  std::sort(every.begin(), every.end());
  for (int i = 0; i <= 64; ++i) EXPECT_EQ(every[static_cast<size_t>(i)], i);
}

TEST(PaperProblem, PublishedScheduleHasThePublishedPrice) {
  Homes homes(65);
  for (const int i : kDevice) homes[static_cast<size_t>(i)] = Tier::kDevice;
  for (const int i : kHost) homes[static_cast<size_t>(i)] = Tier::kHost;
  for (const int i : kDisk) homes[static_cast<size_t>(i)] = Tier::kDisk;
  const PaperPlan plan = price_paper_plan(published_27b(), homes);
  EXPECT_NEAR(plan.objective, 182.0015, 5e-5);  // 13 times 14 ms, 52 times 1e-5 and 1e-3
  EXPECT_EQ(plan.exposed_ms, 0);
  double read = 0, written = 0;
  for (const PaperMove& m : plan.transfers[static_cast<size_t>(PaperLane::kDiskRead)]) read += m.gb;
  for (const PaperMove& m : plan.transfers[static_cast<size_t>(PaperLane::kDiskWrite)]) written += m.gb;
  EXPECT_NEAR(read, 0.0758 + 0.198 + 0.198 + 0.283, 1e-3);  // the published traces
  EXPECT_NEAR(written, 0.2345 + 0.2345 + 0.0515 + 0.2345, 1e-3);
}

class PaperSolverTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    try {
      require_solver(GetParam());
    } catch (const UsageError& e) {
      GTEST_SKIP() << e.what();
    }
  }
  PaperSolution solve(const PaperInstance& in) { return solve_paper(in, {GetParam(), 60, 0}); }
};
INSTANTIATE_TEST_SUITE_P(Solvers, PaperSolverTest, ::testing::Values("highs", "scip"),
                         [](const auto& chosen) { return chosen.param; });

TEST_P(PaperSolverTest, RestrictedSolveGivesThePublishedObjective) {
  PaperInstance in = published_27b();
  in.fixed = published_restriction();
  const PaperSolution solution = solve(in);
  ASSERT_TRUE(solution.plan);
  EXPECT_EQ(solution.status, WindowStatus::kOptimal);
  EXPECT_NEAR(solution.plan->objective, 182.0015, 5e-5);
  EXPECT_NEAR(solution.bound, 182.0015, 5e-4);
  EXPECT_EQ(solution.plan->count(Tier::kDevice), 30);
  EXPECT_EQ(solution.plan->count(Tier::kHost), 21);
  EXPECT_EQ(solution.plan->count(Tier::kDisk), 1);
  EXPECT_EQ(solution.plan->count(std::nullopt), 13);
  EXPECT_EQ(solution.plan->exposed_ms, 0);
}

// Not restricted, nothing is recomputed: 65 times 1e-5 and 14 boundaries on disk at 1e-3.
TEST_P(PaperSolverTest, FreeSolveIsFarBetter) {
  if (GetParam() != "highs") GTEST_SKIP() << "one solver's time is enough";
  const PaperSolution solution = solve(published_27b());
  ASSERT_TRUE(solution.plan);
  EXPECT_EQ(solution.status, WindowStatus::kOptimal);
  EXPECT_NEAR(solution.plan->objective, 0.01465, 1e-6);
  EXPECT_EQ(solution.plan->count(std::nullopt), 0);
  EXPECT_EQ(solution.plan->exposed_ms, 0);
}

// GPT-OSS-120B: 36 layers of 2 H² + 2 H Hkv d + 128 (3 H I + H) + 2 H parameters in bf16, each way once, in 100 ms
// windows at 12 GB/s.
PaperInstance published_120b() {
  PaperInstance in;
  in.name = "120B";
  in.layers = 36;
  in.boundary_gb = all(37, 28.02 * kGib / 37.5);
  in.recompute_ms = all(36, 20);
  in.out_window_ms = in.back_window_ms = all(36, 100);
  const double h = 2880;
  in.gradient_gb = in.parameter_gb = all(36, 2e-9 * (2 * h * h + 2 * h * 512 + 128 * (3 * h * 2880 + h) + 2 * h));
  in.links_gbs = {12, 12, 0, 2.83, 3.35};
  in.budget_gb = {28.02 * kGib, 15 * kGib, 32 * kGib};
  in.max_block = 4;
  return in;
}

TEST_P(PaperSolverTest, GptOssStaysOnTheDevice) {
  const PaperInstance in = published_120b();
  EXPECT_NEAR(mandatory_exposed_ms(in), 31259.54, 0.005);
  const PaperSolution solution = solve(in);
  ASSERT_TRUE(solution.plan);
  EXPECT_EQ(solution.plan->count(Tier::kDevice), 37);
  EXPECT_NEAR(solution.plan->objective, 0.00037, 1e-9);
  EXPECT_EQ(solution.plan->exposed_ms, 0);
}

// Why that model is refused 360 GiB of host memory: bf16 weights and gradients and 32 GiB besides, with 2 % of the
// moments or all of them in 8 bits.
TEST(PaperProblem, GptOssHostBaseIsThePublishedOne) {
  constexpr int64_t kParameters = 116'536'688'640;  // model/gpt_oss_test.cc
  const auto base_gib = [](const char* moments) {
    const double bytes = 4.0 * kParameters + static_cast<double>(optim::planned_state_bytes(moments, kParameters));
    return bytes / (kGib * 1e9) + 32;
  };
  EXPECT_NEAR(base_gib("hybrid:0.02"), 1321.38, 0.01);
  EXPECT_NEAR(base_gib("hybrid:1"), 683.41, 0.01);
}

// What a lane cannot take: boundaries i >= k have the windows from k on, nothing else (Hall).
double exposed_ms(const PaperInstance& in, const Homes& homes, bool disk, double rate,
                  const std::vector<double>& window, const std::vector<double>* mandatory) {
  double worst = 0, need = 0, room = 0;
  for (int k = in.layers - 1; k >= 0; --k) {
    const auto i = static_cast<size_t>(k);
    const bool moves = homes[i] == Tier::kDisk || (!disk && homes[i] == Tier::kHost);
    if (moves) need += in.boundary_gb[i];
    room += std::max(0.0, rate * window[i] / 1000 - (mandatory != nullptr ? (*mandatory)[i] : 0));
    worst = std::max(worst, need - room);
  }
  return 1000 * worst / rate;
}

double price(const PaperInstance& in, const Homes& homes) {
  double gb[3] = {0, 0, 0}, cost = 0;
  int since = 0;
  for (int i = 0; i <= in.layers; ++i) {
    const auto at = static_cast<size_t>(i);
    if (!homes[at]) {
      if (++since >= in.max_block) return kInfinity;
      cost += in.recompute_ms[at - 1];
      continue;
    }
    since = 0;
    gb[static_cast<int>(*homes[at])] += in.boundary_gb[at];
    cost += in.checkpoint_price + (homes[at] == Tier::kDisk ? in.disk_price : 0);
  }
  if (gb[0] > in.budget_gb.device || gb[1] > in.budget_gb.host || gb[2] > in.budget_gb.disk) return kInfinity;
  cost += exposed_ms(in, homes, false, in.links_gbs.d2h, in.out_window_ms, &in.gradient_gb);
  cost += exposed_ms(in, homes, false, in.links_gbs.h2d, in.back_window_ms, &in.parameter_gb);
  cost += exposed_ms(in, homes, true, in.links_gbs.disk_write, in.out_window_ms, nullptr);
  return cost + exposed_ms(in, homes, true, in.links_gbs.disk_read, in.back_window_ms, nullptr);
}

// The least price of all ways to store or drop the boundaries, by trying them all.
double best_price(const PaperInstance& in) {
  Homes homes(static_cast<size_t>(in.layers) + 1);
  homes.front() = homes.back() = Tier::kDevice;
  double best = kInfinity;
  const std::function<void(int)> choose = [&](int i) {
    if (i == in.layers) {
      best = std::min(best, price(in, homes));
      return;
    }
    const auto& f = in.fixed;
    const bool stored = !f || std::count(f->checkpoints.begin(), f->checkpoints.end(), i) > 0;
    const bool device = f && std::count(f->device.begin(), f->device.end(), i) > 0;
    for (const std::optional<Tier> home : Homes{std::nullopt, Tier::kDevice, Tier::kHost, Tier::kDisk}) {
      if (f && (home.has_value() != stored || (home == Tier::kDevice) != device)) continue;
      homes[static_cast<size_t>(i)] = home;
      choose(i + 1);
    }
  };
  choose(1);
  return best;
}

PaperInstance random_instance(uint64_t seed) {
  const CounterRng rng(seed, 91);
  uint64_t draw = 0;
  const auto between = [&](double low, double high) { return low + (high - low) * rng.uniform(draw++); };
  PaperInstance in;
  in.layers = 2 + static_cast<int>(rng.below(draw++, 4));
  in.max_block = 1 + static_cast<int>(rng.below(draw++, 4));
  const auto numbers = [&](int count, double low, double high) {
    std::vector<double> list;
    for (int i = 0; i < count; ++i) list.push_back(between(low, high));
    return list;
  };
  in.boundary_gb = numbers(in.layers + 1, 0.5, 2);
  in.recompute_ms = numbers(in.layers, 5, 300);
  in.out_window_ms = numbers(in.layers, 50, 200);
  in.back_window_ms = numbers(in.layers, 50, 300);
  in.gradient_gb = numbers(in.layers, 0, 1.5);
  in.parameter_gb = numbers(in.layers, 0, 1.5);
  in.links_gbs = {between(4, 14), between(4, 14), 0, between(1, 6), between(1, 6)};
  in.budget_gb = {4 + between(0, 1) * in.layers, between(0, 1.2) * in.layers, between(0, 1.2) * in.layers};
  in.checkpoint_price = 1e-3;
  in.disk_price = 1e-2;
  return in;
}

TEST_P(PaperSolverTest, AgreesWithTryingEverything) {
  int infeasible = 0, exposed = 0, recomputed = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    PaperInstance in = random_instance(seed);
    if (seed % 4 == 3) {
      std::vector<int> every;
      for (int i = 0; i <= in.layers; ++i) every.push_back(i);
      in.fixed = PaperFixed{every, {0, in.layers}};
    }
    const double best = best_price(in);
    const PaperSolution solution = solve(in);
    if (best == kInfinity) {
      EXPECT_FALSE(solution.plan) << seed;
      EXPECT_EQ(solution.status, WindowStatus::kInfeasible);
      ++infeasible;
      continue;
    }
    ASSERT_TRUE(solution.plan) << seed;
    EXPECT_NEAR(solution.plan->objective, best, 1e-4) << seed;
    EXPECT_NEAR(price(in, solution.plan->homes), best, 1e-4) << seed;
    EXPECT_LE(solution.bound, best + 1e-4) << seed;
    exposed += solution.plan->exposed_ms > 0;
    recomputed += solution.plan->recompute_ms > 0;
    const PaperProblem problem = build_paper_problem(in);
    const auto values = problem.values_of(in, *solution.plan);
    EXPECT_LE(problem.mip.max_violation(values), 1e-6) << seed;
    EXPECT_NEAR(problem.mip.objective(values), best, 1e-4) << seed;
  }
  EXPECT_GT(infeasible, 0);
  EXPECT_GT(exposed, 5);
  EXPECT_GT(recomputed, 5);
}

TEST(PaperProblem, GreedyAndNoTimeGiveAPlanToo) {
  for (const SolveOptions& options : {SolveOptions{"greedy", 60, 0}, SolveOptions{"", 0, 0}}) {
    const PaperSolution solution = solve_paper(published_27b(), options);
    ASSERT_TRUE(solution.plan);
    EXPECT_EQ(solution.status, WindowStatus::kFeasible);
    EXPECT_LT(solution.plan->objective, 1);
  }
}

TEST(PaperProblem, JsonKeepsEverything) {
  PaperInstance in = published_27b();
  in.fixed = published_restriction();
  EXPECT_TRUE(is_paper_instance(to_json(in)));
  EXPECT_EQ(paper_instance_from_json(to_json(in), "file"), in);
  Json brief = to_json(in);
  brief["boundary_gb"] = in.boundary_gb[0];
  brief["recompute_ms"] = 14;
  EXPECT_EQ(paper_instance_from_json(brief, "file"), in);
}

TEST(PaperProblem, BrokenFilesAreRefused) {
  const auto refusal = [](const std::function<void(Json&)>& change) {
    PaperInstance in = published_27b();
    in.fixed = published_restriction();
    Json json = to_json(in);
    change(json);
    try {
      paper_instance_from_json(json, "file");
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string("taken");
  };
  EXPECT_THAT(refusal([](Json& j) { j["layers"] = 63; }), HasSubstr("\"boundary_gb\" has 65"));
  EXPECT_THAT(refusal([](Json& j) { j["layers"] = 100000; }), HasSubstr("layers"));
  EXPECT_THAT(refusal([](Json& j) { j["recompute_ms"][3] = -1; }), HasSubstr("recompute_ms[3]"));
  EXPECT_THAT(refusal([](Json& j) { j["recompute_ms"][3] = "14"; }), HasSubstr("recompute_ms"));
  EXPECT_THAT(refusal([](Json& j) { j.erase("gradient_gb"); }), HasSubstr("\"gradient_gb\" is missing"));
  EXPECT_THAT(refusal([](Json& j) { j["links_gbs"]["disk_read"] = 0; }), HasSubstr("links_gbs.disk_read"));
  EXPECT_THAT(refusal([](Json& j) { j["max_block"] = 3; }), HasSubstr("leaves 4 layers between 16 and 20"));
  EXPECT_THAT(refusal([](Json& j) { j["fixed"]["checkpoints"][1] = 0; }), HasSubstr("must ascend"));
  EXPECT_THAT(refusal([](Json& j) { j["fixed"]["device"][1] = 6; }), HasSubstr("fixed.device"));
  EXPECT_THAT(refusal([](Json& j) { j["fixed"]["device"][1] = -1; }), HasSubstr("expected the number of a boundary"));
  EXPECT_THAT(refusal([](Json& j) { j["formulation"] = "lazytrain"; }), HasSubstr("expected 'paper'"));
  EXPECT_THAT(refusal([](Json& j) { j["gap"] = 1; }), HasSubstr("gap"));
}

}  // namespace
}  // namespace lazytrain::plan
