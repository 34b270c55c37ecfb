#include "plan/trace.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "graph/testing.h"
#include "plan/testing.h"

namespace lazytrain::plan {
namespace {

using graph::testing::toy_graph;

class TraceTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  TraceTest() {
    hw::Profile machine;
    machine.gemm_flops = 1e9;
    machine.memory_bandwidth = 1e8;
    machine.host_bandwidth = 5e7;
    timeline = simulate(program, CostTable(graph, program, machine));
  }
  graph::Graph graph = toy_graph(4, true);
  Program program = compile(graph, testing::random_policy(graph, {3, 2, 9}, GetParam()), {});
  Timeline timeline;
};

// By definition, at the middle of every instruction: the buffers whose first and last use enclose that time.
TEST_P(TraceTest, MemoryOverTimeIsWhatIsAlive) {
  const std::vector<MemoryPoint> points = bytes_over_time(program, timeline, Tier::kDevice);
  ASSERT_FALSE(points.empty());
  EXPECT_EQ(points.front().start_s, 0);
  EXPECT_EQ(points.back().bytes, 0);
  for (const Span& at : timeline.spans) {
    const double middle = (at.start_s + at.end_s) / 2;
    int64_t alive = 0;
    for (size_t b = 0; b < program.buffers.size(); ++b) {
      double first = 1e300, last = -1;
      for (const Span& span : timeline.spans) {
        for (const Use& use : program.instructions[static_cast<size_t>(span.instruction)].uses) {
          if (use.buffer != static_cast<int>(b)) continue;
          first = std::min(first, span.start_s);
          last = std::max(last, span.end_s);
        }
      }
      const Buffer& buffer = program.buffers[b];
      if (buffer.tier == Tier::kDevice && first <= middle && middle <= last) alive += buffer.bytes;
    }
    int64_t shown = 0;
    for (const MemoryPoint& point : points) {
      if (point.start_s <= middle) shown = point.bytes;
    }
    EXPECT_EQ(shown, alive);
    EXPECT_LE(shown, program.tier_bytes[0]);
  }
}

TEST_P(TraceTest, TheFileHoldsEveryInstructionOnItsLane) {
  const auto path =
      std::filesystem::temp_directory_path() / fmt::format("lazytrain_trace_{}_{}.json", ::getpid(), GetParam());
  write_trace(program, graph, timeline, path);
  const Json json = read_json(path);
  std::filesystem::remove(path);
  std::map<int, std::string> lanes;
  size_t slices = 0, counters = 0;
  for (const Json& event : json.at("traceEvents")) {
    if (event.at("name") == "thread_name")
      lanes[event.at("tid").get<int>()] = event.at("args").at("name").get<std::string>();
    if (event.at("ph") == "C") ++counters;
    if (event.at("ph") != "X") continue;
    const Span& span = timeline.spans[slices];
    const Instruction& instruction = program.instructions[static_cast<size_t>(span.instruction)];
    EXPECT_EQ(event.at("name"), label(program, graph, span.instruction));
    EXPECT_EQ(lanes.at(event.at("tid").get<int>()), name_of(instruction.lane));
    EXPECT_DOUBLE_EQ(event.at("ts").get<double>(), 1e6 * span.start_s);
    EXPECT_DOUBLE_EQ(event.at("dur").get<double>(), 1e6 * (span.end_s - span.start_s));
    EXPECT_EQ(event.at("args").at("unit"), graph.units[static_cast<size_t>(instruction.unit)].name);
    if (instruction.action == Action::kCompute) {
      EXPECT_EQ(event.at("args").at("micro_batch"), instruction.micro);
    }
    ++slices;
  }
  EXPECT_EQ(slices, program.instructions.size());
  EXPECT_GT(counters, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, TraceTest, ::testing::Range(uint64_t{0}, uint64_t{6}));

TEST(Trace, AFolderThatIsNotThereIsNamed) {
  try {
    write_trace({}, {}, {}, "/nowhere/trace.json");
    FAIL();
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find("/nowhere/trace.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace lazytrain::plan
