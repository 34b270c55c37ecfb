#include "plan/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "graph/testing.h"
#include "plan/testing.h"

namespace lazytrain::plan {
namespace {

using graph::testing::toy_graph;

hw::Profile machine() {
  hw::Profile profile;
  profile.name = "toy";
  profile.one_memory = true;
  profile.gemm_flops = 1e9;
  profile.memory_bandwidth = 1e8;
  profile.host_bandwidth = 5e7;
  profile.launch_s = 1e-6;
  return profile;
}

class TimelineTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  TimelineTest() : graph(toy_graph(4, GetParam() % 2 == 0)) {
    const DType compute = GetParam() % 3 == 0 ? DType::kF32 : DType::kBF16;
    const auto scratch = [](const graph::OpKind&, const graph::Dims& dims) { return 50 * dims.tokens; };
    program = compile(graph, testing::random_policy(graph, {3, 2, 9}, GetParam()),
                      {.compute = compute, .scratch_bytes = scratch});
  }
  graph::Graph graph;
  Program program;
};

TEST_P(TimelineTest, SimulationKeepsTheProgramsOrder) {
  const CostTable costs(graph, program, machine());
  const Timeline timeline = simulate(program, costs);
  ASSERT_EQ(timeline.spans.size(), program.instructions.size());
  std::map<Lane, double> free_at;
  double latest = 0;
  for (size_t i = 0; i < timeline.spans.size(); ++i) {
    const Span& span = timeline.spans[i];
    const Instruction& instruction = program.instructions[i];
    ASSERT_EQ(span.instruction, static_cast<int>(i));
    EXPECT_GT(costs.seconds(static_cast<int>(i)), 0);
    EXPECT_DOUBLE_EQ(span.end_s, span.start_s + costs.seconds(static_cast<int>(i)));
    double ready = free_at[instruction.lane];
    for (const int earlier : instruction.after) {
      ready = std::max(ready, timeline.spans[static_cast<size_t>(earlier)].end_s);
    }
    EXPECT_DOUBLE_EQ(span.start_s, ready);  // not before it may, and not later
    free_at[instruction.lane] = span.end_s;
    latest = std::max(latest, span.end_s);
  }
  EXPECT_DOUBLE_EQ(timeline.step_s, latest);
  const LaneSummary summary = summarize(program, timeline);
  double busy = 0;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (program.instructions[i].lane == Lane::kCompute) busy += costs.seconds(static_cast<int>(i));
  }
  EXPECT_NEAR(summary.busy_s[static_cast<size_t>(Lane::kCompute)], busy, 1e-12);
  EXPECT_GE(timeline.step_s, busy);
  EXPECT_NEAR(summary.exposed_s, timeline.step_s - busy, 1e-12);
  EXPECT_EQ(timeline.peak_bytes, program.tier_bytes);
}

TEST_P(TimelineTest, SimulationIsDeterministic) {
  const Timeline a = simulate(program, CostTable(graph, program, machine()));
  const Timeline b = simulate(program, CostTable(graph, program, machine()));
  EXPECT_EQ(a.step_s, b.step_s);
  for (size_t i = 0; i < a.spans.size(); ++i) EXPECT_EQ(a.spans[i].start_s, b.spans[i].start_s);
}

TEST_P(TimelineTest, FasterMachinesAreNotSlower) {
  const double step = simulate(program, CostTable(graph, program, machine())).step_s;
  for (double hw::Profile::*rate :
       {&hw::Profile::gemm_flops, &hw::Profile::memory_bandwidth, &hw::Profile::host_bandwidth}) {
    hw::Profile faster = machine();
    faster.*rate *= 2;
    EXPECT_LE(simulate(program, CostTable(graph, program, faster)).step_s, step);
  }
}

TEST_P(TimelineTest, MemoryTableAddsUp) {
  int64_t device = 0, host = 0;
  for (const MemoryRow& row : memory_table(program)) {
    EXPECT_GT(row.bytes, 0);
    (row.tier == Tier::kDevice ? device : host) += row.bytes;
  }
  // State: everything there is. Device: what is alive where most is alive, counted here instruction by instruction.
  int64_t state = 0, peak = 0;
  for (const Buffer& buffer : program.buffers) state += buffer.state ? buffer.bytes : 0;
  EXPECT_EQ(host, state);
  EXPECT_LE(state, program.tier_bytes[1]);
  const auto uses = [&](const Instruction& i, size_t b) {
    return std::any_of(i.uses.begin(), i.uses.end(), [&](const Use& use) { return use.buffer == static_cast<int>(b); });
  };
  for (size_t at = 0; at < program.instructions.size(); ++at) {
    int64_t live = 0;
    for (size_t b = 0; b < program.buffers.size(); ++b) {
      if (program.buffers[b].state) continue;
      const auto begin = program.instructions.begin(), middle = begin + static_cast<std::ptrdiff_t>(at);
      const auto uses_b = [&](const Instruction& i) { return uses(i, b); };
      if (std::any_of(begin, middle + 1, uses_b) && std::any_of(middle, program.instructions.end(), uses_b)) {
        live += program.buffers[b].bytes;
      }
    }
    peak = std::max(peak, live);
  }
  EXPECT_EQ(device, peak);
  EXPECT_GE(program.tier_bytes[0], peak);
  EXPECT_LE(static_cast<double>(program.tier_bytes[0]), 1.05 * static_cast<double>(peak));
}

INSTANTIATE_TEST_SUITE_P(RandomPolicies, TimelineTest, ::testing::Range(uint64_t{0}, uint64_t{12}));

TEST(CostTable, RooflineOfAKnownProgram) {
  const graph::Graph graph = toy_graph(1, false);
  const Program program = compile(graph, resident(graph, {1, 1, 10}), {});
  hw::Profile profile = machine();
  profile.memory_bandwidth = 1e30;  // compute bound
  const CostTable costs(graph, program, profile);
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const auto elements = static_cast<double>(graph.units[static_cast<size_t>(instruction.unit)].block_elements);
    const double seconds = costs.seconds(static_cast<int>(i));
    if (instruction.action == Action::kUpdate) {
      EXPECT_DOUBLE_EQ(seconds, elements * 26 / 5e7);
    }
    if (instruction.action == Action::kCompute && instruction.pass == Pass::kForward && instruction.unit == 1) {
      const double flops = 2.0 * 10 * (24 * 24 + 2 * 24 * 8 + 24 * 24 + 3 * 24 * 40) + 64 * 10;
      EXPECT_NEAR(seconds, 1e-6 + flops / 1e9, 1e-12);
    }
  }
}

}  // namespace
}  // namespace lazytrain::plan
