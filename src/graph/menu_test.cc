#include "graph/menu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "graph/testing.h"

namespace lazytrain::graph {
namespace {

using testing::toy_graph;

constexpr Dims kDims{.tokens = 64, .context = 64, .activation_bytes = 2};

double seconds(const OpKind& op) { return op.forward_work(kDims).flops * 1e-9 + op.forward_work(kDims).bytes * 1e-10; }

// Bytes and recompute time of any set of names, from the unit's declarations alone.
std::pair<int64_t, double> measure(const Unit& unit, const std::vector<std::string>& names) {
  const RetainedSet set = retained_set(unit, values_by_name(unit, names), kDims);
  double time = 0;
  for (const int op : recompute_slice(unit, set.values)) time += seconds(*unit.ops[static_cast<size_t>(op)].kind);
  return {set.bytes, time};
}

TEST(RetainedMenu, IsAFrontFromNothingToAlmostNoRecompute) {
  const Graph graph = toy_graph(2, false);
  const Unit& layer = graph.units[1];
  const auto menu = retained_menu(layer, kDims, seconds, 10);
  ASSERT_GE(menu.size(), 4u);
  EXPECT_LE(menu.size(), 10u);
  EXPECT_TRUE(menu.front().retained.empty());
  EXPECT_EQ(menu.front().bytes, 0);
  for (size_t i = 0; i < menu.size(); ++i) {
    const auto [bytes, time] = measure(layer, menu[i].retained);
    EXPECT_EQ(menu[i].bytes, bytes);
    EXPECT_NEAR(menu[i].recompute_s, time, 1e-12);
    if (i == 0) continue;
    EXPECT_GT(menu[i].bytes, menu[i - 1].bytes);
    EXPECT_LT(menu[i].recompute_s, menu[i - 1].recompute_s);
  }
  // Only row ops are left at the end.
  std::vector<std::string> costly;
  for (const ValueId id : costly_to_recompute(layer)) costly.push_back(layer.values[static_cast<size_t>(id)].name);
  EXPECT_LE(menu.back().recompute_s, measure(layer, costly).second + 1e-12);
}

// No set of one or two of the unit's values beats an entry of the whole front.
TEST(RetainedMenu, NothingSmallBeatsTheFront) {
  const Graph graph = toy_graph(2, false);
  const Unit& layer = graph.units[1];
  const auto menu = retained_menu(layer, kDims, seconds, 1000);
  const auto costly = costly_to_recompute(layer);
  for (size_t a = 0; a < costly.size(); ++a) {
    for (size_t b = a; b < costly.size(); ++b) {
      const auto [bytes, time] = measure(layer, {layer.values[static_cast<size_t>(costly[a])].name,
                                                 layer.values[static_cast<size_t>(costly[b])].name});
      const bool covered = std::any_of(menu.begin(), menu.end(), [&, bytes = bytes, time = time](const MenuItem& item) {
        return item.bytes <= bytes && item.recompute_s <= time * (1 + 1e-9);
      });
      EXPECT_TRUE(covered);
    }
  }
}

TEST(RetainedMenu, ThinnedKeepsItsEnds) {
  const Graph graph = toy_graph(1, true);
  const auto all = retained_menu(graph.units[1], kDims, seconds, 1000);
  for (int limit = 2; limit < static_cast<int>(all.size()); ++limit) {
    const auto menu = retained_menu(graph.units[1], kDims, seconds, limit);
    ASSERT_EQ(static_cast<int>(menu.size()), limit);
    EXPECT_EQ(menu.front().bytes, all.front().bytes);
    EXPECT_EQ(menu.back().bytes, all.back().bytes);
  }
}

}  // namespace
}  // namespace lazytrain::graph
