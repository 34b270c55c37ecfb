#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/error.h"
#include "graph/testing.h"
#include "plan/program.h"
#include "plan/testing.h"

namespace lazytrain::plan {
namespace {

using graph::testing::toy_graph;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Kernels that need scratch, so that it takes part.
int64_t toy_scratch(const graph::OpKind& kind, const graph::Dims& dims) {
  return kind.name() == "linear" ? 100 * dims.tokens : 40 * dims.tokens;
}

Program compile_toy(const graph::Graph& graph, const Policy& policy, DType compute) {
  return compile(graph, policy, {.compute = compute, .scratch_bytes = toy_scratch});
}

class CompileTest : public ::testing::TestWithParam<std::tuple<DType, bool, int>> {};

TEST_P(CompileTest, NamedPoliciesAreSound) {
  const auto [compute, tied, layers] = GetParam();
  const graph::Graph graph = toy_graph(layers, tied);
  for (const Shape& shape : {Shape{1, 1, 5}, Shape{4, 2, 7}, Shape{5, 2, 7}, Shape{8, 3, 16}}) {
    for (const std::string& name : policy_names()) {
      SCOPED_TRACE(name + " batch " + std::to_string(shape.batch));
      const Policy policy = named_policy(name, graph, shape);
      const Program program = compile_toy(graph, policy, compute);
      EXPECT_THAT(validate(program), IsEmpty());
      EXPECT_EQ(program.micro_batches, (shape.batch + shape.micro_batch - 1) / shape.micro_batch);
      EXPECT_EQ(program.dims.tokens, shape.micro_batch * shape.seq);
      EXPECT_EQ(program.dims.activation_bytes, size_of(compute));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CompileTest,
                         ::testing::Combine(::testing::Values(DType::kBF16, DType::kF32), ::testing::Bool(),
                                            ::testing::Values(1, 3, 4, 5, 9)),
                         [](const auto& names) {
                           return std::string(name_of(std::get<0>(names.param))) +
                                  (std::get<1>(names.param) ? "Tied" : "Untied") +
                                  std::to_string(std::get<2>(names.param));
                         });

int count_passes(const Program& program, Pass pass) {
  return static_cast<int>(std::count_if(program.instructions.begin(), program.instructions.end(),
                                        [&](const auto& i) { return i.action == Action::kCompute && i.pass == pass; }));
}

TEST(Compile, MegaTrainRunsThreeForwardsALayerAndResidentOne) {
  const graph::Graph graph = toy_graph(8, false);
  const Shape shape{2, 1, 4};
  const Program mega = compile_toy(graph, megatrain(graph, shape), DType::kBF16);
  EXPECT_EQ(count_passes(mega, Pass::kForward), 2 * (1 + 8));
  EXPECT_EQ(count_passes(mega, Pass::kBlockRecompute), 2 * 8);
  EXPECT_EQ(count_passes(mega, Pass::kRecompute), 2 * 8);
  EXPECT_EQ(count_passes(mega, Pass::kBackward), 2 * (1 + 8));
  const Program res = compile_toy(graph, resident(graph, shape), DType::kBF16);
  EXPECT_EQ(count_passes(res, Pass::kBlockRecompute), 0);
  EXPECT_EQ(count_passes(res, Pass::kRecompute), 2 * 8);  // row ops only
  EXPECT_LT(mega.tier_bytes[0], res.tier_bytes[0]);
}

// Recomputed boundaries without the habits of older engines: the last unit of a block is not run again.
TEST(Compile, SlicesSaveTheBlocksLastUnit) {
  const graph::Graph graph = toy_graph(8, false);
  Policy policy = megatrain(graph, {1, 1, 4});
  policy.recompute_whole_block = false;
  EXPECT_EQ(count_passes(compile_toy(graph, policy, DType::kBF16), Pass::kBlockRecompute), 8 - 2);
}

TEST(Compile, GradientBuffersBoundTheAccumulatorsAlive) {
  const graph::Graph graph = toy_graph(6, false);
  for (int buffers = 1; buffers <= 3; ++buffers) {
    Policy policy = resident(graph, {2, 1, 4});
    policy.gradient_buffers = buffers;
    const Program program = compile_toy(graph, policy, DType::kBF16);
    int alive = 0, most = 0;
    std::set<int> open;
    for (const Instruction& i : program.instructions) {
      for (const Use& use : i.uses) {
        if (use.role != Role::kWeightGradient) continue;
        if (i.action == Action::kAccumulate) {
          alive -= static_cast<int>(open.erase(use.buffer));
        } else if (open.insert(use.buffer).second) {
          most = std::max(most, ++alive);
        }
      }
    }
    EXPECT_EQ(most, buffers);
  }
}

TEST(Compile, RandomPoliciesAreSound) {
  std::set<std::string> different;
  for (uint64_t seed = 0; seed < 220; ++seed) {
    const graph::Graph graph = toy_graph(1 + static_cast<int>(seed % 9), seed % 2 == 0);
    const Shape shape{1 + static_cast<int64_t>(seed % 5), 1 + static_cast<int64_t>(seed % 5) / 2, 6};
    const Policy policy = testing::random_policy(graph, shape, seed);
    const Program program = compile_toy(graph, policy, seed % 3 == 0 ? DType::kF32 : DType::kBF16);
    EXPECT_THAT(validate(program), IsEmpty()) << to_json(policy).dump();
    different.insert(to_json(testing::renamed(policy, "")).dump());
  }
  EXPECT_GT(different.size(), 215u);
}

TEST(Compile, RandomPoliciesWithUpdatesInBackwardAreSound) {
  int whole = 0, in_parts = 0, waiting = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    const graph::Graph graph = toy_graph(1 + static_cast<int>(seed % 9), seed % 2 == 0);
    const Shape shape{1 + static_cast<int64_t>(seed % 5), 1 + static_cast<int64_t>(seed % 5) / 2, 6};
    const Policy policy = testing::with_early_updates(testing::random_policy(graph, shape, seed), seed);
    const Program program = compile_toy(graph, policy, seed % 3 == 0 ? DType::kF32 : DType::kBF16);
    EXPECT_THAT(validate(program), IsEmpty()) << to_json(policy).dump();
    for (const UnitState& state : program.state) {
      ++(state.size() > 1 ? in_parts : state[0].early ? whole : waiting);
    }
  }
  EXPECT_GT(std::min({whole, in_parts, waiting}), 50);
}

TEST(Compile, RefusesWhatDoesNotBelong) {
  const graph::Graph graph = toy_graph(4, false);
  const Policy good = resident(graph, {2, 1, 4});
  EXPECT_THROW(compile_toy(toy_graph(5, false), good, DType::kBF16), UsageError);
  Policy policy = good;
  policy.boundaries.front().checkpoint = false;
  EXPECT_THROW(compile_toy(graph, policy, DType::kBF16), InputError);
  policy = good;
  policy.boundaries.pop_back();
  EXPECT_THROW(compile_toy(graph, policy, DType::kBF16), InputError);
  policy = good;
  policy.units[2].weight_home = Tier::kDisk;
  EXPECT_THROW(compile_toy(graph, policy, DType::kBF16), UsageError);
  policy = good;
  policy.units[2].retained = {"no such value"};
  EXPECT_THROW(compile_toy(graph, policy, DType::kBF16), InputError);
  policy = good;
  policy.update_in_backward = true;
  EXPECT_THAT(validate(compile_toy(graph, policy, DType::kBF16)), IsEmpty());
  for (UnitPolicy& unit : policy.units) unit.early_update = 0;
  EXPECT_THROW(compile_toy(graph, policy, DType::kBF16), UsageError);
  policy = resident(graph, {1 << 20, 1, 4});
  EXPECT_THROW(compile_toy(graph, policy, DType::kBF16), UsageError);
}

// ---- the validator sees every way to break a program ----------------------------------------------------------------

// True when the dependency is implied by lane order and the others: found by walking, not by the validator's table.
bool implied(const Program& program, int instruction, int earlier) {
  std::vector<int> open = {instruction};
  std::set<int> seen;
  bool first = true;
  while (!open.empty()) {
    const int at = open.back();
    open.pop_back();
    const Instruction& i = program.instructions[static_cast<size_t>(at)];
    std::vector<int> before;
    for (const int e : i.after) {
      if (!(first && e == earlier)) before.push_back(e);
    }
    for (int e = at - 1; e >= 0; --e) {
      if (program.instructions[static_cast<size_t>(e)].lane == i.lane) {
        before.push_back(e);
        break;
      }
    }
    first = false;
    for (const int e : before) {
      if (e == earlier) return true;
      if (e > earlier && seen.insert(e).second) open.push_back(e);
    }
  }
  return false;
}

// Takes an instruction out and renumbers the dependencies of the others.
void remove_instruction(Program& program, int index) {
  program.instructions.erase(program.instructions.begin() + index);
  for (Instruction& i : program.instructions) {
    i.after.erase(std::remove(i.after.begin(), i.after.end(), index), i.after.end());
    for (int& e : i.after) e -= e > index ? 1 : 0;
  }
}

void insert_instruction(Program& program, int index, const Instruction& added) {
  for (Instruction& i : program.instructions) {
    for (int& e : i.after) e += e >= index ? 1 : 0;
  }
  program.instructions.insert(program.instructions.begin() + index, added);
}

// Swaps instructions `index` and `index` + 1; whoever waited for one of them still does.
void swap_with_next(Program& program, int index) {
  std::swap(program.instructions[static_cast<size_t>(index)], program.instructions[static_cast<size_t>(index) + 1]);
  for (Instruction& i : program.instructions) {
    for (int& e : i.after) {
      if (e == index || e == index + 1) e = 2 * index + 1 - e;
    }
  }
}

int find(const Program& program, const std::function<bool(const Instruction&)>& wanted) {
  const auto it = std::find_if(program.instructions.begin(), program.instructions.end(), wanted);
  EXPECT_TRUE(it != program.instructions.end());
  return static_cast<int>(it - program.instructions.begin());
}

int find_pass(const Program& program, Pass pass, int unit, int micro = 0) {
  return find(program, [&](const Instruction& i) {
    return i.action == Action::kCompute && i.pass == pass && i.unit == unit && i.micro == micro;
  });
}
int find_action(const Program& program, Action action, int unit) {
  return find(program, [&](const Instruction& i) { return i.action == action && i.unit == unit; });
}

class BrokenProgramTest : public ::testing::TestWithParam<std::tuple<DType, bool, bool>> {
 protected:
  // Five layers in blocks, two micro-batches, some values retained: every kind of instruction is there.
  Program sound() const {
    const graph::Graph graph = toy_graph(5, std::get<1>(GetParam()));
    Policy policy = megatrain(graph, {2, 1, 6});
    policy.recompute_whole_unit = false;
    policy.recompute_whole_block = false;
    policy.units[1].retained = {"q.out", "gate.out"};
    policy.units[4].retained = {"attention.out", "attention.lse"};
    policy.update_in_backward = updates_in_backward();
    policy.units[2].early_update = 0.5;
    policy.units[3].early_update = 0;
    return compile_toy(graph, policy, std::get<0>(GetParam()));
  }
  static bool updates_in_backward() { return std::get<2>(GetParam()); }
  Instruction& at(Program& program, int index) const { return program.instructions[static_cast<size_t>(index)]; }
  Use& use_of(Program& program, int index, Role role) const {
    for (Use& use : at(program, index).uses) {
      if (use.role == role) return use;
    }
    ADD_FAILURE() << "no such use";
    return at(program, index).uses.front();
  }
  Buffer& buffer_of(Program& program, int index, Role role) const {
    return program.buffers[static_cast<size_t>(use_of(program, index, role).buffer)];
  }
  // Applies `damage` to a sound program, which must then be found unsound.
  void expect_fault(const std::string& what, const std::function<void(Program&)>& damage) const {
    Program program = sound();
    damage(program);
    EXPECT_THAT(validate(program), Not(IsEmpty())) << what;
  }
};

TEST_P(BrokenProgramTest, IsSoundBefore) { EXPECT_THAT(validate(sound()), IsEmpty()); }

TEST_P(BrokenProgramTest, EveryDependencyIsNeeded) {
  const Program program = sound();
  int removed = 0;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    for (size_t d = 0; d < program.instructions[i].after.size(); ++d) {
      const int earlier = program.instructions[i].after[d];
      if (implied(program, static_cast<int>(i), earlier)) continue;
      Program broken = program;
      auto& after = broken.instructions[i].after;
      after.erase(after.begin() + static_cast<std::ptrdiff_t>(d));
      EXPECT_THAT(validate(broken), Not(IsEmpty())) << i << " no longer waits for " << earlier;
      ++removed;
    }
  }
  EXPECT_GT(removed, 10);
}

TEST_P(BrokenProgramTest, EveryInstructionIsNeeded) {
  const Program program = sound();
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    Program broken = program;
    remove_instruction(broken, static_cast<int>(i));
    EXPECT_THAT(validate(broken), Not(IsEmpty())) << "without instruction " << i;
  }
}

TEST_P(BrokenProgramTest, EveryUseIsNeeded) {
  const Program program = sound();
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    for (size_t u = 0; u < program.instructions[i].uses.size(); ++u) {
      const Use use = program.instructions[i].uses[u];
      if (use.role == Role::kScratch) continue;  // how much a kernel needs, if any, the program does not say
      Program broken = program;
      auto& uses = broken.instructions[i].uses;
      uses.erase(uses.begin() + static_cast<std::ptrdiff_t>(u));
      EXPECT_THAT(validate(broken), Not(IsEmpty())) << i << " without use " << u;
      if (!use.write || use.role == Role::kRetained) continue;
      broken = program;
      broken.instructions[i].uses[u].write = false;
      EXPECT_THAT(validate(broken), Not(IsEmpty())) << i << " only reads use " << u;
    }
  }
}

TEST_P(BrokenProgramTest, SwappedOrder) {
  // Neighbours on one lane may be independent (two micro-batches); these are not.
  expect_fault("a layer before the one below it", [&](Program& p) {
    const int to = find_pass(p, Pass::kForward, 1);
    for (int i = find_pass(p, Pass::kForward, 2); i > to; --i) swap_with_next(p, i - 1);
  });
  expect_fault("backward of a layer before the one above it", [&](Program& p) {
    const int to = find_pass(p, Pass::kBackward, 5);
    for (int i = find_pass(p, Pass::kBackward, 4); i > to; --i) swap_with_next(p, i - 1);
  });
  expect_fault("backward before what it regenerates", [&](Program& p) {
    const int i = find_pass(p, Pass::kRecompute, 3);
    ASSERT_EQ(find_pass(p, Pass::kBackward, 3), i + 1);
    swap_with_next(p, i);
  });
}

TEST_P(BrokenProgramTest, SharedMemory) {
  const Program program = sound();
  // Any two transient buffers of the same tier that are alive at the same instruction.
  int pairs = 0;
  for (const Instruction& i : program.instructions) {
    for (const Use& a : i.uses) {
      for (const Use& b : i.uses) {
        const auto x = static_cast<size_t>(a.buffer), y = static_cast<size_t>(b.buffer);
        if (x >= y || program.buffers[x].tier != program.buffers[y].tier) continue;
        if (program.buffers[x].bytes == 0 || program.buffers[y].bytes == 0) continue;
        Program broken = program;
        broken.buffers[x].offset = broken.buffers[y].offset;
        EXPECT_THAT(validate(broken), Not(IsEmpty())) << program.buffers[x].name << " on " << program.buffers[y].name;
        ++pairs;
      }
    }
  }
  EXPECT_GT(pairs, 100);
}

TEST_P(BrokenProgramTest, PlacesOutsideTheTier) {
  expect_fault("negative offset",
               [&](Program& p) { buffer_of(p, find_pass(p, Pass::kForward, 1), Role::kOutput).offset = -64; });
  expect_fault("behind the end", [&](Program& p) {
    buffer_of(p, find_pass(p, Pass::kForward, 1), Role::kOutput).offset = p.tier_bytes[0];
  });
  expect_fault("a negative size",
               [&](Program& p) { buffer_of(p, find_pass(p, Pass::kForward, 1), Role::kOutput).bytes = -1; });
  expect_fault("a shrunk device", [&](Program& p) { p.tier_bytes[0] -= 64; });
  expect_fault("a shrunk host", [&](Program& p) { p.tier_bytes[1] -= 4096; });
}

TEST_P(BrokenProgramTest, BuffersTooSmall) {
  for (const Role role : {Role::kWorkspace, Role::kGradient, Role::kWeightGradient, Role::kRetained}) {
    expect_fault("a smaller buffer",
                 [&](Program& p) { buffer_of(p, find_pass(p, Pass::kBackward, 4), role).bytes -= 64; });
  }
  expect_fault("a smaller boundary",
               [&](Program& p) { buffer_of(p, find_pass(p, Pass::kForward, 2), Role::kOutput).bytes -= 64; });
}

TEST_P(BrokenProgramTest, DanglingReferences) {
  expect_fault("a layout that is not there",
               [&](Program& p) { at(p, find_pass(p, Pass::kForward, 1)).layout = static_cast<int>(p.layouts.size()); });
  expect_fault("no layout", [&](Program& p) { at(p, find_pass(p, Pass::kForward, 1)).layout = -1; });
  expect_fault("the layout of another unit", [&](Program& p) {
    at(p, find_pass(p, Pass::kForward, 1)).layout = at(p, find_pass(p, Pass::kForward, 3)).layout;
  });
  expect_fault("the layout of another pass", [&](Program& p) {
    at(p, find_pass(p, Pass::kBlockRecompute, 1)).layout = at(p, find_pass(p, Pass::kForward, 1)).layout;
  });
  expect_fault("a buffer that is not there",
               [&](Program& p) { at(p, 0).uses[0].buffer = static_cast<int>(p.buffers.size()); });
  expect_fault("a negative buffer", [&](Program& p) { at(p, 0).uses[0].buffer = -1; });
  expect_fault("a unit that is not there", [&](Program& p) { at(p, find_pass(p, Pass::kForward, 1)).unit = 99; });
  expect_fault("a negative unit", [&](Program& p) { at(p, find_action(p, Action::kUpdate, 1)).unit = -1; });
  expect_fault("a micro-batch that is not there",
               [&](Program& p) { at(p, find_pass(p, Pass::kForward, 1)).micro = 2; });
  expect_fault("steps that are not there", [&](Program& p) { ++at(p, find_pass(p, Pass::kForward, 1)).last_step; });
  expect_fault("steps backwards", [&](Program& p) { at(p, find_pass(p, Pass::kForward, 1)).first_step = 99; });
  expect_fault("a step left out", [&](Program& p) { --at(p, find_pass(p, Pass::kBackward, 2)).last_step; });
  expect_fault("a step run early", [&](Program& p) { ++at(p, find_pass(p, Pass::kRecompute, 2)).last_step; });
  expect_fault("waiting for itself", [&](Program& p) { at(p, 7).after.push_back(7); });
  expect_fault("waiting for a later one", [&](Program& p) { at(p, 7).after.push_back(9); });
  expect_fault("waiting for a negative one", [&](Program& p) { at(p, 7).after.push_back(-1); });
}

TEST_P(BrokenProgramTest, ExtraWork) {
  const auto twice = [&](const std::string& what, const std::function<int(const Program&)>& which) {
    expect_fault(what, [&](Program& p) {
      const int i = which(p);
      insert_instruction(p, i + 1, Instruction(at(p, i)));
    });
  };
  twice("accumulated twice", [&](const Program& p) { return find_action(p, Action::kAccumulate, 3); });
  twice("updated twice", [&](const Program& p) { return find_action(p, Action::kUpdate, 3); });
  twice("backward twice", [&](const Program& p) { return find_pass(p, Pass::kBackward, 3, 1); });
  twice("loss twice", [&](const Program& p) { return find_pass(p, Pass::kLoss, 6); });
}

TEST_P(BrokenProgramTest, WrongContents) {
  expect_fault("reads the boundary of the other micro-batch", [&](Program& p) {
    use_of(p, find_pass(p, Pass::kForward, 2, 1), Role::kInput).buffer =
        use_of(p, find_pass(p, Pass::kForward, 2, 0), Role::kInput).buffer;
  });
  expect_fault("reads weights of another unit", [&](Program& p) {
    use_of(p, find_pass(p, Pass::kForward, 2), Role::kWeights).buffer =
        use_of(p, find_pass(p, Pass::kForward, 1), Role::kWeights).buffer;
  });
  expect_fault("reads what another micro-batch retained", [&](Program& p) {
    use_of(p, find_pass(p, Pass::kBackward, 4, 1), Role::kRetained).buffer =
        use_of(p, find_pass(p, Pass::kBackward, 4, 0), Role::kRetained).buffer;
  });
  expect_fault("adds to another unit's gradient", [&](Program& p) {
    use_of(p, find_pass(p, Pass::kBackward, 4, 1), Role::kWeightGradient).buffer =
        use_of(p, find_pass(p, Pass::kBackward, 5, 1), Role::kWeightGradient).buffer;
  });
  expect_fault("stores another unit's gradient", [&](Program& p) {
    use_of(p, find_action(p, Action::kAccumulate, 2), Role::kGradientStore).buffer =
        use_of(p, find_action(p, Action::kAccumulate, 3), Role::kGradientStore).buffer;
  });
  expect_fault("updates with another unit's moments", [&](Program& p) {
    use_of(p, find_action(p, Action::kUpdate, 2), Role::kOptimizer).buffer =
        use_of(p, find_action(p, Action::kUpdate, 1), Role::kOptimizer).buffer;
  });
  expect_fault("gradients stored before the last micro-batch", [&](Program& p) {
    const int from = find_action(p, Action::kAccumulate, 5);
    Instruction accumulate = at(p, from);
    remove_instruction(p, from);
    accumulate.after = {find_pass(p, Pass::kBackward, 5, 0)};
    const int to = find_pass(p, Pass::kBackward, 5, 1);
    insert_instruction(p, to, accumulate);
    at(p, to + 1).after.push_back(to);
  });
}

TEST_P(BrokenProgramTest, UpdateBehindItsForward) {
  expect_fault("weights before their update", [&](Program& p) {
    // Unit 3's update, moved to the end behind everything, each conflict ordered.
    const int from = find_action(p, Action::kUpdate, 3);
    Instruction update = at(p, from);
    remove_instruction(p, from);
    update.after.clear();
    for (size_t i = 0; i < p.instructions.size(); ++i) update.after.push_back(static_cast<int>(i));
    p.instructions.push_back(update);
  });
}

// Takes an instruction to place `to` before its own, behind everything that then stands before it.
void move_before(Program& program, int index, int to) {
  Instruction moved = program.instructions[static_cast<size_t>(index)];
  remove_instruction(program, index);
  moved.after.clear();
  for (int i = 0; i < to; ++i) moved.after.push_back(i);
  insert_instruction(program, to, moved);
  for (size_t i = static_cast<size_t>(to) + 1; i < program.instructions.size(); ++i) {
    program.instructions[i].after.push_back(to);
  }
}

TEST_P(BrokenProgramTest, UpdatesInBackward) {
  if (!updates_in_backward()) GTEST_SKIP() << "a program without them";
  expect_fault("before its gradient is stored", [&](Program& p) {
    move_before(p, find_action(p, Action::kUpdate, 4), find_action(p, Action::kAccumulate, 4));
  });
  expect_fault("before the gradient of this step",
               [&](Program& p) { move_before(p, find_action(p, Action::kUpdate, 4), 0); });
  expect_fault("before a part of the gradient is there, tied or not", [&](Program& p) {
    const int backward = find_pass(p, Pass::kBackward, 0, 1);
    move_before(p, find_action(p, Action::kAccumulate, 0), backward);
    move_before(p, find_action(p, Action::kUpdate, 0), backward + 1);
  });
  expect_fault("said to wait for forward", [&](Program& p) { p.state[4][0].early = false; });
  expect_fault("said not to wait for forward", [&](Program& p) { p.state[3][0].early = true; });
  expect_fault("the second part and not the first",
               [&](Program& p) { std::swap(p.state[2][0].early, p.state[2][1].early); });
  expect_fault("against the policy", [&](Program& p) { p.policy.update_in_backward = false; });
  expect_fault("state on disk", [&](Program& p) { p.state[4][0].optimizer.tier = Tier::kDisk; });
}

TEST_P(BrokenProgramTest, LaneChanged) {
  const Program program = sound();
  int changed = 0;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (program.instructions[i].lane != Lane::kCompute) continue;
    Program broken = program;
    broken.instructions[i].lane = Lane::kD2H;
    EXPECT_THAT(validate(broken), Not(IsEmpty())) << "instruction " << i;
    ++changed;
  }
  EXPECT_GT(changed, 20);
}

TEST_P(BrokenProgramTest, MessagesNameTheTrouble) {
  Program program = sound();
  const int forward = find_pass(program, Pass::kForward, 2);
  program.buffers[static_cast<size_t>(use_of(program, forward, Role::kOutput).buffer)].offset = 1 << 30;
  EXPECT_THAT(validate(program), Contains(HasSubstr("boundary 2 micro-batch 0")));
  program = sound();
  remove_instruction(program, find_action(program, Action::kUpdate, 3));
  EXPECT_THAT(validate(program), Contains(HasSubstr("unit 3 micro-batch 0: update runs 0 times")));
}

INSTANTIATE_TEST_SUITE_P(All, BrokenProgramTest,
                         ::testing::Combine(::testing::Values(DType::kBF16, DType::kF32), ::testing::Bool(),
                                            ::testing::Bool()),
                         [](const auto& names) {
                           return std::string(name_of(std::get<0>(names.param))) +
                                  (std::get<1>(names.param) ? "Tied" : "Untied") +
                                  (std::get<2>(names.param) ? "Early" : "");
                         });

}  // namespace
}  // namespace lazytrain::plan
