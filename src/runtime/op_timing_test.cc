#include "runtime/op_timing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/cost.h"
#include "runtime/testing.h"

namespace lazytrain::runtime {
namespace {

// Every op of every pass that a step may run has a sample of its own work, so that no time is a guess.
TEST(OpTiming, EveryOpOfAStepIsTimed) {
  for (const bool tied : {false, true}) {
    for (const DType compute : {DType::kBF16, DType::kF32}) {
      const graph::Graph graph = model::build_graph(testing::tiny_qwen2(tied));
      const graph::Dims dims{48, 16, size_of(compute)};
      ThreadPool pool(2), host(1);
      hw::Profile profile;
      profile.gemm_flops = profile.memory_bandwidth = 1;  // what has no sample takes for ever
      profile.ops = time_ops(graph, dims, compute, pool, host);
      for (const hw::OpSample& sample : profile.ops) {
        EXPECT_GT(sample.seconds, 0) << sample.op;
        EXPECT_EQ(sample.tokens, 48);
      }
      for (const graph::Unit& unit : graph.units) {
        const bool head = unit.kind == graph::UnitKind::kHead;
        const graph::Pass last = head ? graph::loss_pass(unit, dims) : graph::backward_pass(unit, {}, dims, true);
        EXPECT_LT(plan::pass_seconds(unit, last, dims, profile), 10) << unit.name;
        if (!head) {
          EXPECT_LT(plan::pass_seconds(unit, graph::forward_pass(unit, {}, dims), dims, profile), 10) << unit.name;
        }
      }
    }
  }
}

// Of layers that are alike one is run: the time of a deep model's ops is that of one layer.
TEST(OpTiming, LayersThatAreAlikeAreTimedOnce) {
  const graph::Dims dims{16, 16, 2};
  ThreadPool pool(1);
  const auto names = [&](int layers) {
    std::vector<std::string> result;
    for (const auto& sample :
         time_ops(model::build_graph(testing::tiny_qwen2(true, layers)), dims, DType::kBF16, pool, pool)) {
      result.push_back(sample.op + (sample.backward ? " backward" : " forward"));
    }
    return result;
  };
  EXPECT_EQ(names(1), names(6));
}

}  // namespace
}  // namespace lazytrain::runtime
