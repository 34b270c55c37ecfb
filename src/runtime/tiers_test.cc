// Programs of several tiers, run: the same bits as in one memory, whatever lies on host and disk.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "runtime/executor.h"
#include "runtime/run_record.h"
#include "runtime/state_testing.h"
#include "runtime/testing.h"

namespace lazytrain::runtime {
namespace {

using testing::compiled;
using testing::Record;

constexpr int64_t kSeq = 19;

// A folder for extents, gone with the test.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / fmt::format("lazytrain-tiers-{}", ::getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  DiskOptions disk(bool io_uring) const { return {.folder = path_, .verify = true, .io_uring = io_uring}; }

 private:
  std::filesystem::path path_;
};

struct Machine {
  std::string name;
  hw::Profile profile;
};

// Device, host and disk apart; and one memory with a disk behind it.
std::vector<Machine> machines() {
  hw::Profile one = plan::testing::tiered_machine();
  one.one_memory = true;
  return {{"three tiers", plan::testing::tiered_machine()}, {"one memory and a disk", one}};
}

plan::Program compiled_for(const graph::Graph& graph, const plan::Policy& policy, DType compute, int threads,
                           const hw::Profile& machine) {
  const plan::CompileOptions options{.compute = compute,
                                     .machine = &machine,
                                     .scratch_bytes = [&](const graph::OpKind& kind, const graph::Dims& dims) {
                                       return Executor::scratch_bytes(kind, dims, threads);
                                     }};
  plan::Program program = plan::compile(graph, policy, options);
  for (const std::string& fault : plan::validate(program)) ADD_FAILURE() << policy.name << ": " << fault;
  return program;
}

// How many policies of each of 18 kinds, fewer under a sanitizer; LAZYTRAIN_POLICIES says otherwise.
uint64_t policies_a_kind() {
#ifdef LAZYTRAIN_SANITIZED
  constexpr uint64_t kPolicies = 2;
#else
  constexpr uint64_t kPolicies = 12;
#endif
  const char* text = std::getenv("LAZYTRAIN_POLICIES");
  return text == nullptr ? kPolicies : std::strtoull(text, nullptr, 10);
}

struct Model {
  std::string name;
  graph::Graph graph;
};

// Alike layers, layers of another family with a tied head, and one whose layers differ in what is retained.
std::vector<Model> models() {
  std::vector<Model> list;
  list.push_back({"qwen2", model::build_graph(testing::tiny_qwen2(false))});
  list.push_back({"llama, tied head", model::build_graph(testing::tiny_llama(true))});
  list.push_back({"qwen2, tied head", model::build_graph(testing::tiny_qwen2(true, 2))});
  return list;
}

TEST(Tiers, RandomPoliciesGiveTheBitsOfResident) {
  const Folder folder;
  const DiskOptions pool_disk = folder.disk(false), ring_disk = folder.disk(true);
  int runs = 0, with_disk = 0;
  for (const Model& model : models()) {
    for (const int64_t micro_batch : {5, 3, 2}) {
      const plan::Shape shape{5, micro_batch, kSeq};
      const DType compute = micro_batch == 3 ? DType::kF32 : DType::kBF16;
      ThreadPool pool(2);
      const Record expected =
          testing::record(model.graph, compiled(model.graph, plan::resident(model.graph, shape), compute, 2), pool);
      testing::expect_alive(expected);
      for (const Machine& machine : machines()) {
        for (uint64_t seed = 0; seed < policies_a_kind(); ++seed) {
          plan::Policy policy = plan::testing::random_tiered_policy(model.graph, shape, 1000 * seed + 7);
          policy.optimizer_state = "fp32";
          plan::Program program = compiled_for(model.graph, policy, compute, 2, machine.profile);
          ++runs;
          with_disk += program.tier_bytes[2] > 0 ? 1 : 0;
          const DiskOptions& disk = seed % 2 == 0 ? ring_disk : pool_disk;
          testing::expect_equal(
              testing::record(model.graph, std::move(program), pool, &disk), expected,
              fmt::format("{} on {}, seed {}: {}", model.name, machine.name, seed, to_json(policy).dump()));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(with_disk, runs / 2);
  fmt::print("{} random policies, {} of them with something on disk\n", runs, with_disk);
}

// Updates that backward begins, whole units and parts of them, end in the bits of those that wait for it to end.
TEST(Tiers, UpdatesInBackwardGiveTheBitsOfResident) {
  const Folder folder;
  const DiskOptions disk = folder.disk(true);
  int early = 0, in_parts = 0;
  for (const Model& model : models()) {
    for (const int64_t micro_batch : {5, 2}) {
      const plan::Shape shape{5, micro_batch, kSeq};
      const DType compute = micro_batch == 5 ? DType::kF32 : DType::kBF16;
      ThreadPool pool(2);
      const Record expected =
          testing::record(model.graph, compiled(model.graph, plan::resident(model.graph, shape), compute, 2), pool);
      for (const Machine& machine : machines()) {
        for (uint64_t seed = 0; seed < policies_a_kind() / 2; ++seed) {
          plan::Policy policy = plan::testing::random_tiered_policy(model.graph, shape, 1000 * seed + 17);
          policy.optimizer_state = "fp32";
          policy = plan::testing::with_early_updates(policy, seed);
          plan::Program program = compiled_for(model.graph, policy, compute, 2, machine.profile);
          for (const plan::UnitState& state : program.state) {
            early += state[0].early ? 1 : 0;
            in_parts += state[0].early && !state.back().early ? 1 : 0;
          }
          testing::expect_equal(
              testing::record(model.graph, std::move(program), pool, &disk), expected,
              fmt::format("{} on {}, seed {}: {}", model.name, machine.name, seed, to_json(policy).dump()));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(in_parts, 10);
  if (policies_a_kind() > 2) {  // of one seed all are in parts
    EXPECT_GT(early - in_parts, 10);
  }
}

// Every kind of 8-bit state: the bits of resident in any home.
TEST(Tiers, EightBitMomentsGiveTheBitsOfResident) {
  const Folder folder;
  const DiskOptions disk = folder.disk(true);
  constexpr std::array kStates = {"8bit", "8bit:4096+embedding", "hybrid:0.5", "8bit:64-head"};
  int runs = 0, with_disk = 0;
  for (size_t i = 0; i < kStates.size(); ++i) {
    const graph::Graph graph = model::build_graph(testing::small_llama(i % 2 == 0));
    const plan::Shape shape{4, i % 2 == 0 ? 4 : 3, kSeq};
    const DType compute = i == 1 ? DType::kF32 : DType::kBF16;
    plan::Policy resident = plan::resident(graph, shape);
    ThreadPool pool(2);
    const Record plain = testing::record(graph, compiled(graph, resident, compute, 2), pool);
    resident.optimizer_state = kStates[i];
    const Record expected = testing::record(graph, compiled(graph, resident, compute, 2), pool);
    testing::expect_alive(expected);
    EXPECT_LT(expected.state.size(), plain.state.size());
    EXPECT_NE(expected.losses[2], plain.losses[2]);
    EXPECT_NEAR(expected.losses[2], plain.losses[2], 0.02 * plain.losses[2]);
    for (const Machine& machine : machines()) {
      for (uint64_t seed = 0; seed < policies_a_kind() / 2; ++seed) {
        plan::Policy policy = plan::testing::random_tiered_policy(graph, shape, 1000 * seed + i);
        if (seed % 2 == 1) policy = plan::testing::with_early_updates(policy, seed);
        policy.optimizer_state = kStates[i];
        plan::Program program = compiled_for(graph, policy, compute, 2, machine.profile);
        ++runs;
        with_disk += program.tier_bytes[2] > 0 ? 1 : 0;
        testing::expect_equal(
            testing::record(graph, std::move(program), pool, &disk), expected,
            fmt::format("{} on {}, seed {}: {}", kStates[i], machine.name, seed, to_json(policy).dump()));
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_GT(with_disk, runs / 4);
}

TEST(Tiers, UpdatesOfEightBitMomentsGiveTheSameBitsWithAnyThreads) {
  const graph::Graph graph = model::build_graph(testing::small_llama(false, 2000));
  plan::Policy policy = plan::resident(graph, {2, 2, kSeq});
  policy.optimizer_state = "8bit";
  ThreadPool two(2);
  testing::Running first(graph, compiled(graph, policy, DType::kBF16, 2), two);
  testing::randomize(graph, first.state, 11);
  const testing::Batch batch = testing::random_batch(graph.vocabulary, {2, 2, kSeq}, 5);
  first.executor.run_step(testing::tokens_of(batch), nullptr);
  std::vector<std::vector<std::byte>> states;
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    testing::Running run(graph, compiled(graph, policy, DType::kBF16, threads), pool);
    testing::copy_state(first.state, run.state);
    for (int64_t number = 1; number <= 3; ++number) run.executor.finish_update(testing::update_number(number));
    states.push_back(testing::state_bytes(run.state));
  }
  EXPECT_TRUE(states[0] == states[1] && states[0] == states[2]);
  EXPECT_FALSE(states[0] == testing::state_bytes(first.state));
}

// Layers of more than 2^21 parameters, which on disk are several pieces.
TEST(Tiers, PiecesOfEightBitMomentsOnDiskGiveTheBitsOfResident) {
  const Folder folder;
  const DiskOptions disk = folder.disk(true);
  Json json = testing::small_llama(false, 4096).raw;
  json["hidden_size"] = 256;  // offsets of parameters are multiples of blocks
  json["num_hidden_layers"] = 1;
  const graph::Graph graph = model::build_graph(model::parse_config(json, "wide llama"));
  const plan::Shape shape{1, 1, kSeq};
  ThreadPool pool(2);
  plan::Policy policy = plan::resident(graph, shape);
  policy.optimizer_state = "8bit";
  const Record expected = testing::record(graph, compiled(graph, policy, DType::kBF16, 2), pool);
  for (const bool weights : {false, true}) {
    for (plan::UnitPolicy& unit : policy.units) {
      unit.optimizer_home = plan::Tier::kDisk;
      if (weights) unit.weight_home = unit.gradient_home = plan::Tier::kDisk;
    }
    plan::Program program = compiled_for(graph, policy, DType::kBF16, 2, machines()[1].profile);
    EXPECT_GT(program.state[1].size(), 1u);
    testing::expect_equal(testing::record(graph, std::move(program), pool, &disk), expected,
                          weights ? "all on disk" : "moments on disk");
  }
}

}  // namespace
}  // namespace lazytrain::runtime
