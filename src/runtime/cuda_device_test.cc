// Whole training steps on the CUDA device without a card: its streams, events, copies and kernels, emulated.
#include "runtime/cuda_device.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "model/family.h"
#include "runtime/cuda_testing.h"
#include "runtime/state_testing.h"

namespace lazytrain::runtime {
namespace {

using cuda::EmulationOptions;
using cuda::LateRuntime;
using cuda::ThreadedRuntime;
using testing::EmulatedCard;
using testing::Record;

constexpr int64_t kSeq = 19;
constexpr int kThreads = 2;
// As they are made: the arena's and the step's copies, then the lanes.
constexpr int kComputeStream = 2, kToDeviceStream = 3, kToHostStream = 4;

template <typename Runtime>
plan::Program compiled_for(EmulatedCard<Runtime>& card, const graph::Graph& graph, const plan::Policy& policy) {
  const hw::Profile machine = plan::testing::tiered_machine();
  const plan::CompileOptions options{.compute = DType::kBF16,
                                     .machine = &machine,
                                     .scratch_bytes = [&](const graph::OpKind& kind, const graph::Dims& dims) {
                                       return card.card.scratch_bytes(kind, dims, kThreads);
                                     }};
  plan::Program program = plan::compile(graph, policy, options);
  for (const std::string& fault : plan::validate(program)) ADD_FAILURE() << policy.name << ": " << fault;
  return program;
}

template <typename Runtime>
ExecutorOptions options_on(EmulatedCard<Runtime>& card) {
  ExecutorOptions options;
  options.device = card.device();
  return options;
}

template <typename Runtime>
Record record_on(EmulatedCard<Runtime>& card, const graph::Graph& graph, plan::Program program, ThreadPool& pool,
                 const DiskOptions* disk = nullptr) {
  auto memory = card.memory_of(program);
  return testing::record(graph, std::move(program), pool, disk, options_on(card), std::move(memory));
}

int policies() {
#if defined(LAZYTRAIN_SANITIZED)
  return 1;
#else
  return 3;
#endif
}

TEST(CudaDevice, TrainsAsTheCpuDoes) {
  for (const bool tied : {false, true}) {
    const graph::Graph graph = model::build_graph(tied ? testing::tiny_llama(true) : testing::tiny_qwen2(false));
    const plan::Shape shape{5, 2, kSeq};
    ThreadPool pool(kThreads);
    const Record cpu =
        testing::record(graph, testing::compiled(graph, plan::resident(graph, shape), DType::kBF16, kThreads), pool);
    EmulatedCard<ThreadedRuntime> card(pool);
    const Record cuda = record_on(card, graph, compiled_for(card, graph, plan::resident(graph, shape)), pool);
    testing::expect_alive(cuda);
    EXPECT_EQ(cuda.counts, cpu.counts);
    for (size_t step = 0; step < cpu.losses.size(); ++step) {  // later ones after updates that differ in places
      EXPECT_NEAR(cuda.losses[step], cpu.losses[step], (step == 0 ? 5e-3 : 2e-2) * cpu.losses[step]) << step;
    }
    EXPECT_LT(testing::relative_error(cuda.gradients[0], cpu.gradients[0]), 0.05);
    EXPECT_NE(cuda.losses[2], cuda.losses[1]);
  }
}

TEST(CudaDevice, ThePolicyNeverChangesTheResult) {
  const testing::TemporaryFolder folder;
  const DiskOptions disk{.folder = folder.path()};
  int on_device = 0, on_disk = 0;
  for (const bool tied : {false, true}) {
    const graph::Graph graph = model::build_graph(tied ? testing::tiny_qwen2(true, 2) : testing::small_llama(false));
    const plan::Shape shape{3, 2, kSeq};
    ThreadPool pool(kThreads);
    for (const std::string state : {"fp32", "8bit"}) {
      plan::Policy policy = plan::resident(graph, shape);
      policy.optimizer_state = state;
      EmulatedCard<ThreadedRuntime> card(pool);
      const Record expected = record_on(card, graph, compiled_for(card, graph, policy), pool);
      testing::expect_alive(expected);
      for (int seed = 0; seed < policies(); ++seed) {
        policy = plan::testing::random_tiered_policy(graph, shape, 1000 * static_cast<uint64_t>(seed) + 3);
        policy.optimizer_state = state;
        EmulatedCard<ThreadedRuntime> other(pool, EmulationOptions{.order = static_cast<uint64_t>(seed)});
        plan::Program program = compiled_for(other, graph, policy);
        on_device += device_state_bytes(program) > 0 ? 1 : 0;
        on_disk += program.tier_bytes[2] > 0 ? 1 : 0;
        testing::expect_equal(record_on(other, graph, std::move(program), pool, &disk), expected,
                              fmt::format("seed {}: {}", seed, to_json(policy).dump()));
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_GT(on_device, 0);
  EXPECT_GT(on_disk, 0);
}

// The bits are right in the most unkind orders that the waits allow.
TEST(CudaDevice, WaitsForAllThatItNeeds) {
  const graph::Graph graph = model::build_graph(testing::tiny_qwen2(true, 2));
  const plan::Shape shape{3, 2, kSeq};
  ThreadPool pool(kThreads);
  EmulatedCard<ThreadedRuntime> card(pool);
  const testing::TemporaryFolder folder;
  const DiskOptions disk{.folder = folder.path()};
  const Record expected = record_on(card, graph, compiled_for(card, graph, plan::resident(graph, shape)), pool);
  for (const int early : {-1, kComputeStream, kToDeviceStream, kToHostStream}) {
    for (int seed = 0; seed < policies(); ++seed) {
      const plan::Policy policy = [&] {
        plan::Policy random = plan::testing::random_tiered_policy(graph, shape, 1000 * static_cast<uint64_t>(seed) + 5);
        random.optimizer_state = "fp32";
        return random;
      }();
      EmulatedCard<LateRuntime> late(pool, EmulationOptions{}, early);
      testing::expect_equal(record_on(late, graph, compiled_for(late, graph, policy), pool, &disk), expected,
                            fmt::format("stream {} early, seed {}", early, seed));
      if (::testing::Test::HasFailure()) return;
    }
  }
}

int stream_of(plan::Lane lane) {
  if (lane == plan::Lane::kH2D) return kToDeviceStream;
  return lane == plan::Lane::kD2H ? kToHostStream : kComputeStream;
}

bool on_device(plan::Lane lane) {
  return lane == plan::Lane::kCompute || lane == plan::Lane::kH2D || lane == plan::Lane::kD2H;
}

// Whether `later` is held back by `earlier` through other dependencies too.
bool ordered(const plan::Program& program, int earlier, int later) {
  std::vector<bool> before(program.instructions.size(), false);
  before[static_cast<size_t>(later)] = true;
  for (int i = later; i >= earlier; --i) {
    if (!before[static_cast<size_t>(i)]) continue;
    if (i == earlier) return true;
    const plan::Instruction& instruction = program.instructions[static_cast<size_t>(i)];
    for (const int j : instruction.after) before[static_cast<size_t>(j)] = true;
    for (int j = i - 1; j >= 0; --j) {
      if (program.instructions[static_cast<size_t>(j)].lane != instruction.lane) continue;
      before[static_cast<size_t>(j)] = true;
      break;
    }
  }
  return false;
}

struct FirstStep {
  double loss;
  std::vector<float> gradients;

  bool operator==(const FirstStep& other) const {
    return loss == other.loss && std::memcmp(gradients.data(), other.gradients.data(), 4 * gradients.size()) == 0;
  }
};

template <typename Runtime>
FirstStep first_step(EmulatedCard<Runtime>& card, const graph::Graph& graph, const plan::Program& program,
                     ThreadPool& pool) {
  const plan::Policy& policy = program.policy;
  testing::Running run(graph, program, pool, nullptr, options_on(card), card.memory_of(program));
  testing::randomize(graph, run.state, 11);
  const testing::Batch batch =
      testing::random_batch(graph.vocabulary, {policy.batch, policy.micro_batch, policy.seq}, 500);
  const StepResult result = run.executor.run_step(testing::tokens_of(batch), nullptr);
  return {result.loss.nll, testing::gradients_of(graph, run.state)};
}

// Each wait of one stream for another in turn is taken out of the program: the proof finds it, and so do most runs.
TEST(CudaDevice, ARemovedWaitIsCaught) {
  const graph::Graph graph = model::build_graph(testing::tiny_qwen2(false, 2));
  const plan::Shape shape{2, 1, kSeq};
  plan::Policy policy = plan::resident(graph, shape);
  for (plan::UnitPolicy& unit : policy.units) unit.weight_home = unit.optimizer_home = plan::Tier::kHost;
  policy.weight_slots = 1;
  policy.gradient_buffers = 1;
  ThreadPool pool(kThreads);
  EmulatedCard<ThreadedRuntime> card(pool);
  const plan::Program program = compiled_for(card, graph, policy);
  const FirstStep expected = first_step(card, graph, program, pool);
  int removed = 0, caught = 0;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const plan::Instruction& instruction = program.instructions[i];
    for (size_t k = 0; k < instruction.after.size(); ++k) {
      const int earlier = instruction.after[k];
      const plan::Lane lane = program.instructions[static_cast<size_t>(earlier)].lane;
      if (!on_device(instruction.lane) || !on_device(lane) || lane == instruction.lane) continue;
      plan::Program without = program;
      auto& after = without.instructions[i].after;
      after.erase(after.begin() + static_cast<std::ptrdiff_t>(k));
      if (ordered(without, earlier, static_cast<int>(i))) continue;
      ++removed;
      EXPECT_FALSE(plan::validate(without).empty()) << label(program, graph, static_cast<int>(i));
      EmulatedCard<LateRuntime> late(pool, EmulationOptions{}, stream_of(instruction.lane));
      const bool same = first_step(late, graph, without, pool) == expected;
      caught += same ? 0 : 1;
    }
  }
  EXPECT_GE(removed, 10);
  // A run does not see what the order of its threads hides: the host waits for gradients on their way out at once.
  EXPECT_GE(3 * caught, 2 * removed) << caught << " of " << removed;
}

TEST(CudaDevice, AsksForTheBytesOfThePlanAndNoMore) {
  const graph::Graph graph = model::build_graph(testing::tiny_qwen2(false));
  const plan::Policy policy = plan::testing::random_tiered_policy(graph, {3, 2, kSeq}, 5);
  ThreadPool pool(kThreads);
  const testing::TemporaryFolder folder;
  const DiskOptions disk{.folder = folder.path()};
  EmulatedCard<ThreadedRuntime> card(pool);
  const plan::Program program = compiled_for(card, graph, policy);
  {
    testing::Running run(graph, program, pool, &disk, options_on(card), card.memory_of(program));
    EXPECT_EQ(card.runtime.allocated_bytes(), program.tier_bytes[0] + cuda_step_bytes(program, graph));
    EXPECT_GE(card.runtime.registered_bytes(), program.tier_bytes[1]);
  }
  EXPECT_EQ(card.runtime.allocated_bytes(), 0);
  EXPECT_EQ(card.runtime.registered_bytes(), 0);
  EmulatedCard<ThreadedRuntime> small(pool, EmulationOptions{.device_bytes = program.tier_bytes[0] - 1});
  EXPECT_THROW(small.memory_of(program), RunError);
}

TEST(CudaDevice, RunsWhereTheSystemDoesNotPinMemory) {
  const graph::Graph graph = model::build_graph(testing::tiny_qwen2(false, 1));
  const plan::Policy policy = plan::resident(graph, {2, 2, kSeq});
  ThreadPool pool(kThreads);
  EmulatedCard<ThreadedRuntime> card(pool), pageable(pool, EmulationOptions{.can_pin = false});
  testing::expect_equal(record_on(pageable, graph, compiled_for(pageable, graph, policy), pool),
                        record_on(card, graph, compiled_for(card, graph, policy), pool), "pageable");
}

TEST(CudaDevice, RefusesWhatItCannotRun) {
  const graph::Graph graph = model::build_graph(testing::tiny_qwen2(false, 1));
  const plan::Policy policy = plan::resident(graph, {2, 2, kSeq});
  ThreadPool pool(kThreads);
  EmulatedCard<ThreadedRuntime> card(pool);
  plan::Program program = testing::compiled(graph, policy, DType::kBF16, kThreads);
  TierMemory memory = TierMemory::of(program, nullptr);
  EXPECT_THROW(card.device()(graph, program, memory), UsageError);  // one memory
  program.one_memory = false;
  program.compute = DType::kF32;
  EXPECT_THROW(card.device()(graph, program, memory), UsageError);
}

// A kernel that fails ends the step with its error, and nothing hangs.
TEST(CudaDevice, AnErrorOfTheDeviceEndsTheStep) {
  const graph::Graph graph = model::build_graph(testing::tiny_qwen2(false, 2));
  ThreadPool pool(kThreads);
  EmulatedCard<ThreadedRuntime> card(pool);
  plan::Policy policy = plan::megatrain(graph, {2, 2, kSeq});
  plan::Program program = compiled_for(card, graph, policy);
  auto memory = card.memory_of(program);
  testing::Running run(graph, program, pool, nullptr, options_on(card), std::move(memory));
  testing::randomize(graph, run.state, 11);
  testing::Batch batch = testing::random_batch(graph.vocabulary, {2, 2, kSeq}, 5);
  card.runtime.make_stream().enqueue([] { throw RunError("the card fell off the bus"); });
  EXPECT_THROW(run.executor.run_step(testing::tokens_of(batch), nullptr), RunError);
  EXPECT_THROW(run.executor.run_step(testing::tokens_of(batch), nullptr), RunError);
}

}  // namespace
}  // namespace lazytrain::runtime
