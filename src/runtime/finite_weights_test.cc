#include "runtime/finite_weights.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace lazytrain::runtime {
namespace {

// Two units of one parameter each; what find_not_finite reads of a graph.
graph::Graph two_parameters() {
  graph::Graph graph;
  for (const char* name : {"first", "second"}) {
    graph::Unit unit;
    graph::Parameter parameter;
    parameter.name = name;
    parameter.shape = {2, 3};
    parameter.elements = 6;
    unit.params.push_back(parameter);
    graph.units.push_back(unit);
  }
  return graph;
}

TEST(FiniteWeights, NamesTheFirstTensorAndCountsItsValues) {
  const graph::Graph graph = two_parameters();
  std::vector<float> good(6, 1.0f), bad(6, 1.0f);
  const auto weight = [&](int unit, int) { return dense(unit == 0 ? good.data() : bad.data(), DType::kF32, 2, 3); };
  EXPECT_FALSE(find_not_finite(graph, weight).has_value());
  bad[1] = std::numeric_limits<float>::quiet_NaN();
  bad[5] = -std::numeric_limits<float>::infinity();
  const auto broken = find_not_finite(graph, weight);
  ASSERT_TRUE(broken.has_value());
  EXPECT_EQ(broken->describe(), "tensor 'second': 2 of its 6 values are not finite (NaN or infinite)");
}

TEST(FiniteWeights, ReadsBf16) {
  const graph::Graph graph = two_parameters();
  std::vector<bf16> values(6, to_bf16(2.0f));
  const auto weight = [&](int, int) { return dense(values.data(), DType::kBF16, 2, 3); };
  EXPECT_FALSE(find_not_finite(graph, weight).has_value());
  values[4] = bf16{0x7f80};  // infinity
  ASSERT_TRUE(find_not_finite(graph, weight).has_value());
  EXPECT_EQ(find_not_finite(graph, weight)->values, 1);
}

}  // namespace
}  // namespace lazytrain::runtime
