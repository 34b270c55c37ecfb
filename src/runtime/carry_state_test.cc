#include "runtime/carry_state.h"

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <numeric>

#include "runtime/run_record.h"
#include "runtime/state_testing.h"

namespace lazytrain::runtime {
namespace {

using testing::Record;
using testing::Running;

constexpr plan::Shape kShape{5, 3, 19};

hw::Profile machine(bool one_memory) {
  hw::Profile profile = plan::testing::tiered_machine();
  profile.one_memory = one_memory;
  return profile;
}

plan::Program compiled_for(const graph::Graph& graph, const plan::Policy& policy, const hw::Profile& profile) {
  return plan::compile(graph, policy, {.machine = &profile, .scratch_bytes = [](const auto& kind, const auto& dims) {
                                         return Executor::scratch_bytes(kind, dims, 2);
                                       }});
}

// As testing::record, but every step runs under another program, to which the state is carried.
Record record_changing(const graph::Graph& graph, std::vector<plan::Program> programs, ThreadPool& pool,
                       const DiskOptions& disk) {
  Record record;
  auto run = std::make_unique<Running>(graph, std::move(programs[0]), pool, &disk);
  testing::randomize(graph, run->state, 11);
  for (int64_t step = 0; step < 3; ++step) {
    const testing::Batch batch = testing::random_batch(graph.vocabulary, kShape, static_cast<uint64_t>(500 + step));
    const StepResult result = run->executor.run_step(testing::tokens_of(batch), nullptr);
    record.losses.push_back(result.loss.nll);
    record.counts.push_back(result.loss.count);
    for (const ParameterGradient& g : result.gradients) record.sums_of_squares.push_back(g.sum.sum_of_squares);
    record.gradients.push_back(testing::gradients_of(graph, run->state));
    run->executor.finish_update(testing::update_number(step + 1));
    if (step == 2) break;
    auto next = std::make_unique<Running>(graph, std::move(programs[static_cast<size_t>(step + 1)]), pool, &disk);
    carry_state({run->executor.program(), run->memory, run->state}, next->state);
    run = std::move(next);
  }
  record.state = testing::state_bytes(run->state);
  return record;
}

TEST(CarryState, ChangingTheProgramBetweenStepsChangesNoBit) {
  const testing::TemporaryFolder folder;
  const DiskOptions disk{.folder = folder.path(), .verify = true};
  ThreadPool pool(2);
  for (const std::string state : {"fp32", "8bit"}) {
    const graph::Graph graph = model::build_graph(testing::small_llama(state == "8bit"));
    plan::Policy resident = plan::resident(graph, kShape);
    resident.optimizer_state = state;
    const Record expected = testing::record(graph, testing::compiled(graph, resident, DType::kBF16, 2), pool);
    testing::expect_alive(expected);
    for (const bool one_memory : {false, true}) {
      const hw::Profile profile = machine(one_memory);
      for (uint64_t seed = 0; seed < 8; ++seed) {
        std::vector<plan::Program> programs;
        for (uint64_t i = 0; i < 3; ++i) {
          plan::Policy policy = plan::testing::random_tiered_policy(graph, kShape, 100 * seed + i);
          policy.optimizer_state = state;
          programs.push_back(compiled_for(graph, policy, profile));
        }
        testing::expect_equal(record_changing(graph, std::move(programs), pool, disk), expected,
                              fmt::format("{}, {}, seed {}", state, one_memory ? "one memory" : "tiers", seed));
      }
    }
  }
}

plan::Policy with_moments(const graph::Graph& graph, const std::function<plan::Tier(size_t)>& home) {
  plan::Policy policy = plan::resident(graph, kShape);
  for (size_t u = 0; u < policy.units.size(); ++u) {
    policy.units[u].weight_home = plan::Tier::kHost;
    policy.units[u].optimizer_home = home(u);
  }
  return policy;
}

// What is in memory while halves change places: first half in, then the other half out.
TEST(CarryState, TheMostBytesAreThoseOfTheWorstMoment) {
  const graph::Graph graph = model::build_graph(testing::small_llama(false));
  const hw::Profile profile = machine(false);
  const auto program = [&](bool first_half) {
    return compiled_for(graph,
                        with_moments(graph,
                                     [&](size_t u) {
                                       return (u < graph.units.size() / 2) == first_half ? plan::Tier::kHost
                                                                                         : plan::Tier::kDisk;
                                     }),
                        profile);
  };
  const plan::Program first = program(true), second = program(false);
  std::vector<int64_t> elements;
  for (const graph::Unit& unit : graph.units) elements.push_back(unit.block_elements);
  const int64_t all = std::accumulate(elements.begin(), elements.end(), int64_t{0});
  const int64_t half = std::accumulate(elements.begin(), elements.begin() + 2, int64_t{0});
  ASSERT_EQ(elements.size(), 4u);
  // Weights lie on the host in both. Carrying frees the first half's moments before the second half's arrive; the
  // other way round all of them are there at once.
  constexpr int64_t kSlack = 4 * 3 * 16384 + (9 << 20);  // edges of pages, staging of both disks
  const auto host = [&](const plan::Program& a, const plan::Program& b) { return carry_bytes(graph, a, b)[1]; };
  const int64_t worst = 4 * all + 8 * all;
  EXPECT_GE(host(second, first), worst);
  EXPECT_LE(host(second, first), worst + 4 * *std::max_element(elements.begin(), elements.end()) + kSlack);
  EXPECT_GE(host(first, second), 4 * all + 8 * half);
  EXPECT_EQ(carry_bytes(graph, first, second)[2], first.tier_bytes[2] + second.tier_bytes[2]);
}

// Pages of [memory, memory + bytes) that the process holds.
int64_t resident_pages(std::byte* memory, int64_t bytes) {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> pages(static_cast<size_t>((bytes + page - 1) / page));
  if (::mincore(memory, static_cast<size_t>(bytes), pages.data()) != 0) return -1;
  return std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; });
}

TEST(CarryState, GivesTheOldMemoryBack) {
  Json json = testing::small_llama(false, 1024).raw;
  const graph::Graph graph = model::build_graph(model::parse_config(json, "llama"));
  const hw::Profile profile = machine(true);
  ThreadPool pool(2);
  Running before(graph, compiled_for(graph, plan::resident(graph, kShape), profile), pool);
  Running after(graph, compiled_for(graph, plan::megatrain(graph, kShape), profile), pool);
  testing::randomize(graph, before.state, 11);
  before.executor.run_step(testing::tokens_of(testing::random_batch(graph.vocabulary, kShape, 1)), nullptr);
  before.executor.finish_update(testing::update_number(1));
  const int64_t bytes = before.memory.bytes(plan::Tier::kHost);
  std::byte* host = before.memory.at(plan::Tier::kHost, 0);
  EXPECT_GT(resident_pages(host, bytes) * ::sysconf(_SC_PAGESIZE), bytes / 2);
  carry_state({before.executor.program(), before.memory, before.state}, after.state);
  EXPECT_LE(resident_pages(host, bytes), 2 * 4 * std::ssize(graph.units));  // edges of ranges
}

TEST(Arena, ReleasedPagesReadAsZerosAndTheirNeighboursStay) {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  Arena arena(4 * page + 100, "a test");
  std::memset(arena.at(0), 7, static_cast<size_t>(arena.bytes()));
  arena.release(10, 3 * page + 5);
  EXPECT_EQ(std::to_integer<int>(*arena.at(page - 1)), 7);
  EXPECT_EQ(std::to_integer<int>(*arena.at(page)), 0);
  EXPECT_EQ(std::to_integer<int>(*arena.at(3 * page - 1)), 0);
  EXPECT_EQ(std::to_integer<int>(*arena.at(3 * page)), 7);
  arena.release(3 * page + 1, arena.bytes());
  EXPECT_EQ(std::to_integer<int>(*arena.at(3 * page + 5)), 7);
  EXPECT_EQ(std::to_integer<int>(*arena.at(arena.bytes() - 1)), 0);
}

}  // namespace
}  // namespace lazytrain::runtime
