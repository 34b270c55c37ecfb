// Programs for machines whose device, host and disk are different memories.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/arith.h"
#include "base/error.h"
#include "graph/testing.h"
#include "plan/describe.h"
#include "plan/program.h"
#include "plan/testing.h"
#include "plan/timeline.h"

namespace lazytrain::plan {
namespace {

using graph::testing::toy_graph;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Program compile_tiered(const graph::Graph& graph, const Policy& policy, DType compute, const hw::Profile& machine) {
  const auto scratch = [](const graph::OpKind&, const graph::Dims& dims) { return 40 * dims.tokens; };
  return compile(graph, policy, {.compute = compute, .machine = &machine, .scratch_bytes = scratch});
}

// The peak of live bytes of a tier: first use to last use, state always. Found apart from placement.
int64_t live_peak(const Program& program, Tier tier) {
  std::map<int, std::pair<size_t, size_t>> life;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    for (const Use& use : program.instructions[i].uses) {
      const auto [it, added] = life.try_emplace(use.buffer, i, i);
      it->second.second = i;
    }
  }
  std::vector<int64_t> at(program.instructions.size(), 0);
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.tier != tier) continue;
    std::pair<size_t, size_t> range{0, at.size() - 1};
    if (!buffer.state) {
      if (!life.contains(static_cast<int>(b))) continue;
      range = life.at(static_cast<int>(b));
    }
    for (size_t i = range.first; i <= range.second; ++i) at[i] += buffer.bytes;
  }
  return *std::max_element(at.begin(), at.end());
}

TEST(Tiers, RandomPoliciesAreSoundAndPackTightly) {
  const hw::Profile machine = testing::tiered_machine();
  std::map<Action, int> seen;
  double worst = 1;
  for (uint64_t seed = 0; seed < 240; ++seed) {
    const graph::Graph graph = toy_graph(1 + static_cast<int>(seed % 9), seed % 2 == 0);
    const Shape shape{1 + static_cast<int64_t>(seed % 5), 1 + static_cast<int64_t>(seed % 5) / 2, 64};
    const Policy policy = testing::random_tiered_policy(graph, shape, seed);
    const Program program = compile_tiered(graph, policy, seed % 3 == 0 ? DType::kF32 : DType::kBF16, machine);
    ASSERT_THAT(validate(program), IsEmpty()) << to_json(policy).dump();
    for (const Instruction& i : program.instructions) ++seen[i.action];
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
      const int64_t live = live_peak(program, tier);
      ASSERT_GE(program.tier_bytes[static_cast<size_t>(tier)], live);
      if (live > 1 << 20) {
        worst = std::max(
            worst, static_cast<double>(program.tier_bytes[static_cast<size_t>(tier)]) / static_cast<double>(live));
      }
    }
    const Timeline timeline = simulate(program, CostTable(graph, program, machine));
    ASSERT_GT(timeline.step_s, 0);
    ASSERT_EQ(timeline.peak_bytes, program.tier_bytes);
  }
  for (const Action action : {Action::kCopyIn, Action::kCopyOut, Action::kFetch, Action::kDiskRead, Action::kDiskWrite,
                              Action::kAccumulate, Action::kUpdate}) {
    EXPECT_GT(seen[action], 100) << name_of(action);
  }
  EXPECT_LT(worst, 1.05);
}

TEST(Tiers, RandomPoliciesWithUpdatesInBackwardAreSound) {
  const hw::Profile machine = testing::tiered_machine();
  for (uint64_t seed = 0; seed < 120; ++seed) {
    const graph::Graph graph = toy_graph(1 + static_cast<int>(seed % 9), seed % 2 == 0);
    const Shape shape{1 + static_cast<int64_t>(seed % 5), 1 + static_cast<int64_t>(seed % 5) / 2, 64};
    const Policy policy = testing::with_early_updates(testing::random_tiered_policy(graph, shape, seed), seed);
    const Program program = compile_tiered(graph, policy, seed % 3 == 0 ? DType::kF32 : DType::kBF16, machine);
    ASSERT_THAT(validate(program), IsEmpty()) << to_json(policy).dump();
    int early = 0;
    for (const Instruction& i : program.instructions) {
      const auto& state = program.state[static_cast<size_t>(i.unit)];
      if (i.action == Action::kUpdate) early += state[static_cast<size_t>(i.piece)].early ? 1 : 0;
    }
    ASSERT_GT(early, 0);
    ASSERT_GT(simulate(program, CostTable(graph, program, machine)).step_s, 0);
  }
}

// Lanes keep their order and dependencies, and the two directions together never exceed the joint rate.
TEST(Tiers, SimulationKeepsOrderAndTheJointLimit) {
  const hw::Profile machine = testing::tiered_machine();
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const graph::Graph graph = toy_graph(6, seed % 2 == 0);
    const Policy policy = testing::random_tiered_policy(graph, {4, 2, 64}, seed);
    const Program program = compile_tiered(graph, policy, DType::kBF16, machine);
    const CostTable costs(graph, program, machine);
    const Timeline timeline = simulate(program, costs);
    std::map<Lane, double> free_at;
    double moved = 0, link_busy_until = 0, link_busy = 0;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      const Span& span = timeline.spans[i];
      ASSERT_GE(span.start_s, free_at[instruction.lane] - 1e-12);
      for (const int e : instruction.after)
        ASSERT_GE(span.start_s, timeline.spans[static_cast<size_t>(e)].end_s - 1e-12);
      ASSERT_GE(span.end_s - span.start_s, costs.seconds(static_cast<int>(i)) * (1 - 1e-9));
      free_at[instruction.lane] = span.end_s;
    }
    std::vector<std::pair<double, double>> busy;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      if (!costs.shares_link(static_cast<int>(i))) continue;
      moved += static_cast<double>(transfer_bytes(program, program.instructions[i]));
      busy.emplace_back(timeline.spans[i].start_s, timeline.spans[i].end_s);
    }
    std::sort(busy.begin(), busy.end());
    for (const auto& [start, end] : busy) {
      link_busy += std::max(0.0, end - std::max(start, link_busy_until));
      link_busy_until = std::max(link_busy_until, end);
    }
    EXPECT_LE(moved, machine.links.joint * link_busy * (1 + 1e-9));
  }
}

TEST(Tiers, StateLiesWhereThePolicySays) {
  const hw::Profile machine = testing::tiered_machine();
  const graph::Graph graph = toy_graph(6, false);
  Policy policy = megatrain(graph, {2, 1, 64});
  const Program on_host = compile_tiered(graph, policy, DType::kBF16, machine);
  policy.units[3].weight_home = policy.units[3].optimizer_home = Tier::kDevice;
  const Program one_on_device = compile_tiered(graph, policy, DType::kBF16, machine);
  const int64_t unit_bytes = 14 * graph.units[3].block_elements;  // weights 4, moments 8, gradient 2
  EXPECT_NEAR(static_cast<double>(on_host.tier_bytes[1] - one_on_device.tier_bytes[1]), static_cast<double>(unit_bytes),
              3 * 4096.0);
  policy.units[3].weight_home = Tier::kHost;
  policy.units[3].optimizer_home = Tier::kDisk;
  const Program on_disk = compile_tiered(graph, policy, DType::kBF16, machine);
  EXPECT_EQ(on_disk.tier_bytes[2] / 4096, (8 * graph.units[3].block_elements + 4095) / 4096);
  policy.optimizer_state = "8bit";
  const Program small = compile_tiered(graph, policy, DType::kBF16, machine);
  for (const Buffer& buffer : small.buffers) {
    if (!buffer.state || buffer.purpose != Purpose::kOptimizer) continue;
    const int64_t bytes = optimizer_bytes(graph, "8bit")[static_cast<size_t>(buffer.unit)];
    EXPECT_EQ(buffer.bytes, buffer.tier == Tier::kDisk ? align_up(bytes, kDiskAlignment) : bytes);
  }
}

TEST(Tiers, KeptWeightsAreCopiedOnce) {
  const hw::Profile machine = testing::tiered_machine();
  const graph::Graph graph = toy_graph(5, false);
  Policy policy = resident(graph, {2, 2, 64});
  for (UnitPolicy& unit : policy.units) unit.weight_home = unit.optimizer_home = Tier::kHost;
  const auto copies = [&](const Policy& p) {
    const Program program = compile_tiered(graph, p, DType::kBF16, machine);
    return std::count_if(program.instructions.begin(), program.instructions.end(),
                         [](const Instruction& i) { return i.action == Action::kCopyIn; });
  };
  const auto streamed = copies(policy);
  policy.units[2].keep_weights = policy.units[4].keep_weights = true;
  EXPECT_EQ(streamed, 2 * 5 + 1);  // each layer twice, the head once
  EXPECT_EQ(copies(policy), streamed - 2);
}

TEST(Tiers, WithoutChasingEveryUpdateComesFirst) {
  const hw::Profile machine = testing::tiered_machine();
  const graph::Graph graph = toy_graph(5, true);
  Policy policy = megatrain(graph, {2, 1, 64});
  policy.update_chases_forward = false;
  Program program = compile_tiered(graph, policy, DType::kBF16, machine);
  ASSERT_THAT(validate(program), IsEmpty());
  const Timeline timeline = simulate(program, CostTable(graph, program, machine));
  double updated = 0, first = timeline.step_s;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (program.instructions[i].action == Action::kUpdate) updated = std::max(updated, timeline.spans[i].end_s);
    if (program.instructions[i].action == Action::kCompute) first = std::min(first, timeline.spans[i].start_s);
  }
  EXPECT_GE(first, updated);
  policy.update_chases_forward = true;
  program = compile_tiered(graph, policy, DType::kBF16, machine);
  EXPECT_LT(simulate(program, CostTable(graph, program, machine)).step_s, timeline.step_s);
  program.policy.update_chases_forward = false;  // what it was not compiled for
  EXPECT_THAT(validate(program), Not(IsEmpty()));
}

TEST(Tiers, TheMapNamesHomesAndColoursThemWhenAsked) {
  const hw::Profile machine = testing::tiered_machine();
  const graph::Graph graph = toy_graph(4, false);
  Policy policy = every_layer(graph, {2, 2, 64});
  policy.boundaries[0].home = Tier::kDevice;
  policy.boundaries[1].checkpoint = false;
  policy.boundaries[3].home = Tier::kDisk;
  policy.units[4].weight_home = policy.units[4].optimizer_home = Tier::kDevice;
  const Program program = compile_tiered(graph, policy, DType::kBF16, machine);
  const Timeline timeline = simulate(program, CostTable(graph, program, machine));
  const std::string plain = describe(program, graph, timeline, machine, {});
  EXPECT_THAT(plain, HasSubstr("boundary:  D.HN "));
  EXPECT_THAT(plain, HasSubstr("weights:   sssv "));
  EXPECT_THAT(plain, Not(HasSubstr("\033")));
  const std::string painted = describe(program, graph, timeline, machine, {}, true);
  EXPECT_THAT(painted, HasSubstr("\033[34mD\033[0m.\033[33mH\033[0m\033[35mN\033[0m"));
}

TEST(Tiers, RefusesWhatNoProgramCanDo) {
  hw::Profile machine = testing::tiered_machine();
  const graph::Graph graph = toy_graph(4, false);
  Policy policy = megatrain(graph, {2, 1, 4});
  policy.units[2].weight_home = Tier::kDevice;
  EXPECT_THROW(compile_tiered(graph, policy, DType::kBF16, machine), UsageError);
  policy = megatrain(graph, {2, 1, 4});
  policy.units[0].weight_home = policy.units[0].gradient_home = Tier::kDisk;
  EXPECT_THAT(validate(compile_tiered(graph, policy, DType::kBF16, machine)), IsEmpty());
  policy = megatrain(graph, {2, 1, 4});
  policy.boundaries[1].home = Tier::kDisk;
  EXPECT_THAT(validate(compile_tiered(graph, policy, DType::kBF16, machine)), IsEmpty());
  machine.disk_bytes = 0;
  EXPECT_THROW(compile_tiered(graph, policy, DType::kBF16, machine), UsageError);
}

// ---- every instruction of a tiered program matters, and its place does ---------------------------------------------

// A tied head, updates in backward.
class BrokenTiersTest : public ::testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  Program sound() const {
    const graph::Graph graph = toy_graph(4, std::get<0>(GetParam()));
    Policy policy = megatrain(graph, {2, 1, 64});
    policy.update_in_backward = std::get<1>(GetParam());
    policy.recompute_whole_unit = policy.recompute_whole_block = false;
    policy.update_chases_forward = true;
    for (size_t b = 0; b < policy.boundaries.size(); ++b) policy.boundaries[b].checkpoint = b != 2;
    policy.boundaries[1].home = Tier::kDisk;
    policy.boundaries[0].home = Tier::kHost;
    policy.units[1].retained = {"q.out", "gate.out"};
    policy.units[1].retained_home = Tier::kHost;
    policy.units[2].optimizer_home = Tier::kDisk;
    policy.units[2].weight_home = Tier::kDisk;
    policy.units[2].gradient_home = Tier::kDisk;
    policy.units[3].weight_home = policy.units[3].optimizer_home = Tier::kDevice;
    policy.units[4].keep_weights = true;
    hw::Profile machine = testing::tiered_machine();
    machine.links = {1e9, 1e9, 2e9, 1e9, 1e9};  // quick enough that everything really leaves
    return compile_tiered(graph, policy, DType::kBF16, machine);
  }
};

TEST_P(BrokenTiersTest, EveryInstructionIsNeeded) {
  const Program program = sound();
  ASSERT_THAT(validate(program), IsEmpty());
  std::set<Action> actions;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    actions.insert(program.instructions[i].action);
    Program broken = program;
    broken.instructions.erase(broken.instructions.begin() + static_cast<std::ptrdiff_t>(i));
    for (Instruction& instruction : broken.instructions) {
      std::erase(instruction.after, static_cast<int>(i));
      for (int& e : instruction.after) e -= e > static_cast<int>(i) ? 1 : 0;
    }
    EXPECT_THAT(validate(broken), Not(IsEmpty())) << "without " << i << " " << name_of(program.instructions[i].action);
  }
  EXPECT_EQ(actions.size(), kActionNames.size());
}

TEST_P(BrokenTiersTest, LanesTiersAndSizesMatter) {
  const Program program = sound();
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Action action = program.instructions[i].action;
    if (action != Action::kCopyOut && action != Action::kFetch && action != Action::kDiskRead &&
        action != Action::kDiskWrite) {
      continue;
    }
    Program broken = program;
    broken.instructions[i].lane = Lane::kCompute;
    EXPECT_THAT(validate(broken), Not(IsEmpty())) << i << " on another lane";
    broken = program;
    for (const Use& use : broken.instructions[i].uses) {
      if (use.role == Role::kSource) broken.buffers[static_cast<size_t>(use.buffer)].tier = Tier::kDisk;
      if (use.role == Role::kTarget && action == Action::kDiskRead)
        broken.buffers[static_cast<size_t>(use.buffer)].tier = Tier::kDevice;
    }
    EXPECT_THAT(validate(broken), Not(IsEmpty())) << i << " from elsewhere";
    broken = program;
    broken.buffers[static_cast<size_t>(broken.instructions[i].uses[1].buffer)].bytes /= 4;
    EXPECT_THAT(validate(broken), Not(IsEmpty())) << i << " into less room";
  }
}

TEST_P(BrokenTiersTest, KernelsReachOnlyTheirMemory) {
  const Program program = sound();
  int broken_ones = 0;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (program.instructions[i].action != Action::kCompute) continue;
    for (const Use& use : program.instructions[i].uses) {
      if (program.buffers[static_cast<size_t>(use.buffer)].bytes == 0) continue;
      Program broken = program;
      Tier& tier = broken.buffers[static_cast<size_t>(use.buffer)].tier;
      tier = tier == Tier::kDevice ? Tier::kHost : Tier::kDevice;
      EXPECT_THAT(validate(broken), Not(IsEmpty()));
      ++broken_ones;
    }
  }
  EXPECT_GT(broken_ones, 50);
}

INSTANTIATE_TEST_SUITE_P(TiedEarly, BrokenTiersTest, ::testing::Combine(::testing::Bool(), ::testing::Bool()));

}  // namespace
}  // namespace lazytrain::plan
