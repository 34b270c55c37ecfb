#include "runtime/model_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "model/safetensors_writer.h"
#include "runtime/finite_weights.h"
#include "runtime/master_weights.h"
#include "runtime/state_testing.h"
#include "runtime/testing.h"

namespace lazytrain::runtime {
namespace {

using testing::array_bytes;
using testing::Draws;
using testing::kAllArrays;
using testing::kAllTiers;
using testing::kDiskOnly;
using testing::PlacedState;
using testing::Places;
using testing::random_places;
using testing::state_bytes;

using Bytes = std::vector<std::byte>;

// Units of parameters with the given numbers of elements, the last with a tied one before them.
graph::Graph graph_of(const std::vector<std::vector<int64_t>>& sizes, bool tied) {
  graph::Graph graph;
  for (size_t u = 0; u < sizes.size(); ++u) {
    graph::Unit unit;
    unit.name = fmt::format("unit.{}", u);
    if (tied && u + 1 == sizes.size()) {
      const int64_t n = sizes[0][0];
      unit.params.push_back({.name = "tied", .shape = {n}, .elements = n, .tied = true});
    }
    for (const int64_t n : sizes[u]) {
      unit.params.push_back({.name = fmt::format("{}.{}", u, unit.params.size()),
                             .shape = {n},
                             .elements = n,
                             .offset = unit.block_elements});
      unit.block_elements += align_up(n, 64);
    }
    graph.units.push_back(std::move(unit));
  }
  return graph;
}

graph::Graph random_graph(Draws& draws) {
  constexpr std::array<int64_t, 6> kSizes = {1, 2, 63, 64, 65, 2048};
  std::vector<std::vector<int64_t>> sizes(static_cast<size_t>(2 + draws.below(3)));
  for (auto& unit : sizes) {
    for (int64_t i = draws.below(4); i >= 0; --i) {
      unit.push_back(draws.below(2) == 0 ? kSizes[static_cast<size_t>(draws.below(6))] : 1 + draws.below(5000));
    }
  }
  return graph_of(sizes, draws.below(2) == 0);
}

// The arrays of every parameter as plain bytes: what a state must be like.
class Mirror {
 public:
  explicit Mirror(const ModelState& state) : state_(state) {}

  Bytes& array(int unit, int parameter, StateArray array) {
    const graph::Parameter& p = parameter_of(unit, parameter);
    if (p.tied) unit = parameter = 0;
    Bytes& bytes = arrays_[{unit, parameter, array}];
    bytes.resize(
        static_cast<size_t>(state_.elements(unit, parameter, array) * state_.element_bytes(unit, parameter, array)));
    return bytes;
  }
  const graph::Parameter& parameter_of(int unit, int parameter) const {
    return state_.graph().units[static_cast<size_t>(unit)].params[static_cast<size_t>(parameter)];
  }

 private:
  const ModelState& state_;
  std::map<std::tuple<int, int, StateArray>, Bytes> arrays_;
};

Bytes visited(const ModelState& state, int unit, int parameter, StateArray array) {
  Bytes all;
  state.visit(unit, parameter, array,
              [&](std::span<const std::byte> bytes) { all.insert(all.end(), bytes.begin(), bytes.end()); });
  return all;
}

// Writes random ranges of random arrays and reads others.
void exercise(ModelState& state, Mirror& mirror, Draws& draws, int operations) {
  const auto& units = state.graph().units;
  for (int i = 0; i < operations; ++i) {
    const auto u = static_cast<int>(draws.below(std::ssize(units)));
    const auto p = static_cast<int>(draws.below(std::ssize(units[static_cast<size_t>(u)].params)));
    const StateArray array = kAllArrays[static_cast<size_t>(draws.below(std::ssize(kAllArrays)))];
    const int64_t elements = state.elements(u, p, array), size = state.element_bytes(u, p, array);
    const int64_t first = draws.below(elements + 1), count = draws.below(elements - first + 1);
    const auto expected = std::span(mirror.array(u, p, array))
                              .subspan(static_cast<size_t>(first * size), static_cast<size_t>(count * size));
    if (draws.below(2) == 0) {
      const Bytes bytes = draws.bytes(count * size);
      std::copy(bytes.begin(), bytes.end(), expected.begin());
      state.write(u, p, array, first, bytes);
    } else {
      Bytes bytes(expected.size(), std::byte{0xee});
      state.read(u, p, array, first, bytes);
      ASSERT_TRUE(std::ranges::equal(bytes, expected)) << "operation " << i;
    }
  }
}

void expect_mirrored(const ModelState& state, Mirror& mirror) {
  for (int u = 0; u < static_cast<int>(state.graph().units.size()); ++u) {
    for (int p = 0; p < static_cast<int>(state.graph().units[static_cast<size_t>(u)].params.size()); ++p) {
      for (const StateArray array : kAllArrays) {
        const Bytes& expected = mirror.array(u, p, array);
        ASSERT_TRUE(array_bytes(state, u, p, array) == expected) << u << " " << p << " " << static_cast<int>(array);
        ASSERT_TRUE(visited(state, u, p, array) == expected) << u << " " << p << " " << static_cast<int>(array);
        const std::byte* at = state.in_place(u, p, array);
        ASSERT_TRUE(at == nullptr || expected.empty() || std::memcmp(at, expected.data(), expected.size()) == 0);
      }
      int64_t next = 0;
      state.visit_weights(u, p, [&](int64_t first, std::span<const bf16> hi, std::span<const int16_t> lo) {
        ASSERT_EQ(first, next);
        ASSERT_EQ(hi.size(), lo.size());
        ASSERT_EQ(std::memcmp(hi.data(), mirror.array(u, p, StateArray::kHi).data() + 2 * first, hi.size_bytes()), 0);
        ASSERT_EQ(std::memcmp(lo.data(), mirror.array(u, p, StateArray::kLo).data() + 2 * first, lo.size_bytes()), 0);
        next += std::ssize(hi);
      });
      ASSERT_EQ(next, mirror.parameter_of(u, p).elements);
    }
  }
}

TEST(ModelState, IsTheSameWhereverItLies) {
  std::set<plan::Tier> met;
  int in_place = 0, apart = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    Draws draws(seed);
    const graph::Graph graph = random_graph(draws);
    const DType gradient = seed % 2 == 0 ? DType::kBF16 : DType::kF32;
    const Places places = random_places(graph, gradient, seed % 5 == 0 ? kDiskOnly : kAllTiers, seed);
    PlacedState placed(graph, gradient, places);
    EXPECT_EQ(placed->in_memory(), places.bytes[static_cast<size_t>(plan::Tier::kDisk)] == 0);
    Mirror mirror(*placed);
    expect_mirrored(*placed, mirror);  // all zero
    exercise(*placed, mirror, draws, 100);
    expect_mirrored(*placed, mirror);
    for (const plan::Tier tier : kAllTiers) {
      if (places.bytes[static_cast<size_t>(tier)] > 0) met.insert(tier);
    }
    for (const StateArray array : kAllArrays) {
      if (array == StateArray::kScales) continue;
      ++(placed->in_place(0, 0, array) != nullptr ? in_place : apart);
    }
  }
  EXPECT_EQ(met.size(), 3u);
  EXPECT_GT(in_place, 20);
  EXPECT_GT(apart, 20);
}

// Matrices large enough for 8-bit moments, beside vectors, in pieces cut at blocks.
TEST(ModelState, EightBitMomentsAreTheSameWhereverTheyLie) {
  const graph::Graph graph = model::build_graph(testing::small_llama(true));
  int scales = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    Draws draws(seed);
    const std::string state = std::array{"8bit", "8bit:64+embedding", "hybrid:0.3"}[seed % 3];
    PlacedState placed(graph, DType::kBF16,
                       random_places(graph, DType::kBF16, seed % 4 == 0 ? kDiskOnly : kAllTiers, seed, state));
    Mirror mirror(*placed);
    expect_mirrored(*placed, mirror);  // all zero
    exercise(*placed, mirror, draws, 300);
    expect_mirrored(*placed, mirror);
    ModelState one(graph, DType::kBF16, state);
    testing::copy_state(*placed, one);
    EXPECT_TRUE(state_bytes(one) == state_bytes(*placed));
    testing::each_parameter(graph, [&](int u, int p, const graph::Parameter& parameter) {
      EXPECT_EQ(one.format(u, p), placed->format(u, p));
      const bool small = one.format(u, p).kind == optim::StateKind::k8Bit;
      EXPECT_EQ(one.element_bytes(u, p, StateArray::kMoment1), small ? 1 : 4);
      EXPECT_EQ(one.elements(u, p, StateArray::kScales),
                small ? 2 * div_ceil(parameter.elements, one.format(u, p).block) : 0);
      scales += small ? 1 : 0;
      if (small) {
        EXPECT_THROW(one.arrays(u, p), std::logic_error);
      }
    });
    EXPECT_TRUE(one.in_place(StateArray::kScales));
    EXPECT_LT(one.bytes(), ModelState(graph, DType::kBF16).bytes());
  }
  EXPECT_GT(scales, 60);
}

TEST(ModelState, OfOneMemoryIsInPlace) {
  Draws draws(3);
  const graph::Graph graph = random_graph(draws);
  ModelState state(graph, DType::kBF16);
  EXPECT_TRUE(state.in_memory());
  for (const StateArray array : kAllArrays) EXPECT_TRUE(state.in_place(array));
  Mirror mirror(state);
  exercise(state, mirror, draws, 100);
  expect_mirrored(state, mirror);
  const Bytes& moments = mirror.array(1, 0, StateArray::kMoment2);
  EXPECT_EQ(std::memcmp(state.arrays(1, 0).v, moments.data(), moments.size()), 0);
}

// 12 MB of moments and 6 MB of halves on disk.
TEST(ModelState, ComesFromDiskInPiecesAndFromMemoryInOne) {
  const graph::Graph graph = graph_of({{100, 3'000'001}}, false);
  PlacedState placed(graph, DType::kBF16, random_places(graph, DType::kBF16, kDiskOnly, 1));
  ModelState one(graph, DType::kBF16);
  const auto spans_of = [&](const ModelState& state, StateArray array) {
    std::vector<size_t> sizes;
    state.visit(0, 1, array, [&](std::span<const std::byte> bytes) { sizes.push_back(bytes.size()); });
    return sizes;
  };
  for (const StateArray array : kAllArrays) {
    if (array == StateArray::kScales) continue;  // fp32 has none
    EXPECT_THAT(spans_of(one, array), ::testing::SizeIs(1));
    EXPECT_THAT(spans_of(*placed, array), ::testing::Each(::testing::Le(static_cast<size_t>(DiskBytes::kPiece))));
    EXPECT_GT(spans_of(*placed, array).size(), 1u);
  }
  one.initialize(5, nullptr);
  placed->initialize(5, nullptr);
  EXPECT_TRUE(state_bytes(*placed) == state_bytes(one));
  EXPECT_NE(testing::weight(*placed, 0, 1, 3'000'000), 0);
  testing::set_weight(*placed, 0, 1, 2'999'999, std::numeric_limits<float>::infinity());
  const auto broken = find_not_finite(*placed);
  ASSERT_TRUE(broken.has_value());
  EXPECT_EQ(broken->values, 1);
  EXPECT_EQ(broken->parameter->name, "0.1");
  EXPECT_FALSE(find_not_finite(one).has_value());
}

TEST(ModelState, LoadsTheSameWeightsWhereverItLies) {
  const graph::Graph graph = graph_of({{3000}, {77, 1'200'000}}, true);
  const testing::TemporaryFolder folder;
  std::vector<model::TensorSpec> specs;
  testing::each_parameter(graph, [&](int, int, const graph::Parameter& p) {
    specs.push_back({p.name, specs.empty() ? DType::kBF16 : DType::kF32, p.shape});
  });
  model::write_model_weights(folder.path(), specs, [&](size_t index, const model::TensorSink& sink) {
    const CounterRng rng(9, index);
    Bytes bytes(static_cast<size_t>(model::bytes_of(specs[index])));
    for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
      const auto value = static_cast<float>(rng.normal(i));
      std::memcpy(bytes.data() + i, &value, sizeof value);
    }
    sink(bytes);
  });
  ModelState one(graph, DType::kBF16);
  one.load_weights(model::ModelFolder(folder.path()), nullptr);
  for (const auto& tiers : {kDiskOnly, kAllTiers}) {
    PlacedState placed(graph, DType::kBF16, random_places(graph, DType::kBF16, tiers, 2));
    placed->load_weights(model::ModelFolder(folder.path()), nullptr);
    EXPECT_TRUE(state_bytes(*placed) == state_bytes(one));
  }
  EXPECT_NE(testing::weight(one, 1, 2, 1'199'999), 0);
}

// Pieces at offsets that follow one another: only within a tier are they one range.
TEST(ModelState, PiecesOfTwoTiersAreNotOne) {
  const graph::Graph graph = graph_of({{128}}, false);
  const auto at = [](int64_t offset) { return plan::StatePlace{plan::Tier::kHost, offset}; };
  const plan::StatePiece front{
      .first = 0, .elements = 64, .hi = at(0), .lo = at(256), .optimizer = at(512), .gradient = at(1536)};
  plan::StatePiece back{
      .first = 64, .elements = 64, .hi = at(128), .lo = at(384), .optimizer = at(1024), .gradient = at(1664)};
  PlacedState together(graph, DType::kBF16, {.state = {{front, back}}, .bytes = {256, 1792, 0}});
  EXPECT_NE(together->in_place(0, 0, StateArray::kHi), nullptr);
  EXPECT_EQ(together->in_place(0, 0, StateArray::kMoment1), nullptr);
  back.hi.tier = plan::Tier::kDevice;
  PlacedState apart(graph, DType::kBF16, {.state = {{front, back}}, .bytes = {256, 1792, 0}});
  EXPECT_EQ(apart->in_place(0, 0, StateArray::kHi), nullptr);
  Draws draws(1);
  Mirror mirror(*apart);
  exercise(*apart, mirror, draws, 50);
  expect_mirrored(*apart, mirror);
}

void expect_same_views(const graph::Graph& graph) {
  ThreadPool pool(2);
  ModelState one(graph, DType::kBF16);
  testing::randomize(graph, one, 4);
  PlacedState placed(graph, DType::kBF16, random_places(graph, DType::kBF16, kDiskOnly, 5));
  testing::copy_state(one, *placed);
  for (const DType compute : {DType::kBF16, DType::kF32}) {
    MasterWeights expected(one, compute, pool), actual(*placed, compute, pool);
    for (int u = 0; u < static_cast<int>(graph.units.size()); ++u) {
      std::vector<TensorView> views;  // of a unit: all must hold at once
      const auto params = static_cast<int>(graph.units[static_cast<size_t>(u)].params.size());
      for (int p = 0; p < params; ++p) views.push_back(actual.view(u, p));
      for (int p = 0; p < params; ++p) {
        const TensorView other = expected.view(u, p), view = views[static_cast<size_t>(p)];
        ASSERT_EQ(view.bytes(), other.bytes());
        EXPECT_EQ(view.dtype, compute);
        EXPECT_EQ(std::memcmp(view.data, other.data, static_cast<size_t>(view.bytes())), 0) << u << " " << p;
      }
    }
  }
}

TEST(ModelState, ViewsOfWeightsAreTheSameWhereverItLies) {
  const graph::Graph graph = model::build_graph(testing::tiny_qwen2(true));
  expect_same_views(graph);
  expect_same_views(graph_of({{3000}, {77, 1'200'000}}, true));  // more than is merged at a time
  EXPECT_EQ(MasterWeights::bytes_needed(graph, DType::kBF16, true), 0);
  EXPECT_EQ(2 * MasterWeights::bytes_needed(graph, DType::kBF16, false),
            MasterWeights::bytes_needed(graph, DType::kF32, false));
  EXPECT_EQ(MasterWeights::bytes_needed(graph, DType::kF32, true),
            MasterWeights::bytes_needed(graph, DType::kF32, false));
}

TEST(ModelState, RefusesWhatIsNotThere) {
  const graph::Graph graph = graph_of({{100}, {50}}, false);
  PlacedState placed(graph, DType::kBF16, random_places(graph, DType::kBF16, kDiskOnly, 1));
  Bytes bytes(8);
  EXPECT_NO_THROW(placed->read(0, 0, StateArray::kHi, 96, bytes));
  EXPECT_THROW(placed->read(0, 0, StateArray::kHi, 97, bytes), std::logic_error);
  EXPECT_THROW(placed->write(0, 0, StateArray::kHi, -1, bytes), std::logic_error);
  EXPECT_THROW(placed->read(0, 0, StateArray::kHi, 0, std::span(bytes).first(3)), std::logic_error);
  EXPECT_THROW(placed->arrays(0, 0), std::logic_error);
  EXPECT_THROW(placed->gradient(0, 0), std::logic_error);
  EXPECT_THROW(placed->base(), std::logic_error);
}

TEST(ModelState, RefusesPlacesThatAreNone) {
  const graph::Graph graph = graph_of({{100}, {50}}, false);
  const Places good = random_places(graph, DType::kBF16, kAllTiers, 1);
  const auto refused = [&](const auto& spoil) {
    Places places = good;
    spoil(places);
    EXPECT_THROW(PlacedState(graph, DType::kBF16, places), std::logic_error);
  };
  EXPECT_NO_THROW(PlacedState(graph, DType::kBF16, good));
  refused([](Places& p) { p.state.pop_back(); });
  refused([](Places& p) { p.state[0].back().elements -= 1; });
  refused([](Places& p) { p.state[0][0].first = 1; });
  refused([](Places& p) { p.state[1][0].optimizer.offset += 2; });
  refused([](Places& p) { p.state[1][0].hi.offset = -4; });
  refused([](Places& p) {
    const plan::StatePlace& place = p.state[1].back().optimizer;
    p.state[1].back().lo = {place.tier, p.bytes[static_cast<size_t>(place.tier)]};
  });
}

}  // namespace
}  // namespace lazytrain::runtime
