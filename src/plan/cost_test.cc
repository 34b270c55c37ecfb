#include "plan/cost.h"

#include <gtest/gtest.h>

#include "graph/testing.h"

namespace lazytrain::plan {
namespace {

hw::Profile machine() {
  hw::Profile profile;
  profile.gemm_flops = 1e9;
  profile.memory_bandwidth = 1e9;
  return profile;
}

hw::OpSample sample_of(const graph::OpKind& op, bool backward, const graph::Dims& dims, double seconds) {
  const graph::Work work = backward ? op.backward_work(dims) : op.forward_work(dims);
  return {std::string(op.name()), backward, dims.tokens, work.flops, work.bytes, seconds};
}

TEST(OpSeconds, ASampleTakesWhatItTook) {
  const graph::testing::Kind wide = graph::testing::toy_linear(64, 256), narrow = graph::testing::toy_linear(64, 8);
  const graph::Dims dims{100, 10, 2};
  hw::Profile profile = machine();
  const double analytic = op_seconds(*wide, false, dims, profile);
  EXPECT_DOUBLE_EQ(analytic, 2.0 * 64 * 256 * 100 / 1e9);
  profile.ops = {sample_of(*wide, false, dims, 7), sample_of(*narrow, false, dims, 3),
                 sample_of(*wide, true, dims, 11)};
  EXPECT_DOUBLE_EQ(op_seconds(*wide, false, dims, profile), 7);
  EXPECT_DOUBLE_EQ(op_seconds(*narrow, false, dims, profile), 3);
  EXPECT_DOUBLE_EQ(op_seconds(*wide, true, dims, profile), 11);
  // Twice the tokens take twice as long; an op that was not run is as the rates say.
  EXPECT_DOUBLE_EQ(op_seconds(*wide, false, {200, 10, 2}, profile), 14);
  const graph::testing::Kind norm = graph::testing::toy_norm(64);
  EXPECT_DOUBLE_EQ(op_seconds(*norm, false, dims, profile), op_seconds(*norm, false, dims, machine()));
}

TEST(OpSeconds, TheNearestSampleCorrects) {
  const graph::testing::Kind small = graph::testing::toy_linear(64, 64), large = graph::testing::toy_linear(64, 4096),
                             between = graph::testing::toy_linear(64, 3000);
  const graph::Dims dims{100, 10, 2};
  hw::Profile profile = machine();
  profile.ops = {sample_of(*small, false, dims, 5 * op_seconds(*small, false, dims, machine())),
                 sample_of(*large, false, dims, 2 * op_seconds(*large, false, dims, machine()))};
  EXPECT_DOUBLE_EQ(op_seconds(*between, false, dims, profile), 2 * op_seconds(*between, false, dims, machine()));
}

TEST(PassSeconds, AddsUpTheStepsOfBothDirections) {
  const graph::Graph graph = graph::testing::toy_graph(3, false);
  const graph::Unit& unit = graph.units[1];
  const graph::Dims dims{32, 8, 2};
  const graph::Pass pass = graph::backward_pass(unit, {}, dims, true);
  hw::Profile profile = machine();
  double forward = 0, backward = 0;
  for (const graph::Step& step : pass.steps) {
    (step.backward ? backward : forward) +=
        op_seconds(*unit.ops[static_cast<size_t>(step.op)].kind, step.backward, dims, profile);
  }
  EXPECT_DOUBLE_EQ(pass_seconds(unit, pass, dims, profile), forward + backward);
  EXPECT_DOUBLE_EQ(pass_seconds(unit, pass, 0, pass.recompute_steps, dims, profile), forward);
  EXPECT_GT(backward, forward);
}

}  // namespace
}  // namespace lazytrain::plan
