#include "model/init.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace lazytrain::model {
namespace {

graph::Parameter parameter(const std::string& name, int64_t elements, graph::Init init = graph::Init::kNormal) {
  graph::Parameter p;
  p.name = name;
  p.shape = {elements};
  p.init = init;
  p.elements = elements;
  return p;
}

std::vector<float> values(const graph::Parameter& p, uint64_t seed, ThreadPool* pool = nullptr) {
  std::vector<float> out(static_cast<size_t>(p.elements));
  fill_initial(p, 0.02, seed, out, 0, pool);
  return out;
}

TEST(Init, IsNormalWithTheConfiguredRange) {
  const int64_t n = 200'000;
  const auto v = values(parameter("w", n), 7);
  double sum = 0, squares = 0, fourth = 0, neighbours = 0;
  for (size_t i = 0; i < v.size(); ++i) {
    const double z = v[i] / 0.02;
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
    if (i > 0) neighbours += z * (v[i - 1] / 0.02);
  }
  const double sigma = 1 / std::sqrt(static_cast<double>(n));  // of a mean of n normal numbers; five of them allowed
  EXPECT_NEAR(sum / n, 0, 5 * sigma);
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2.0) * sigma);
  EXPECT_NEAR(fourth / n, 3, 5 * std::sqrt(96.0) * sigma);
  EXPECT_NEAR(neighbours / n, 0, 5 * sigma);
}

TEST(Init, SameValuesWhateverThreadsAndRanges) {
  const auto p = parameter("model.layers.0.mlp.up_proj.weight", 30'001);
  const auto whole = values(p, 42);
  for (const int threads : {2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(values(p, 42, &pool), whole) << threads;
  }
  for (const int64_t first : {0, 1, 2, 4095, 29'999, 30'000}) {
    for (const int64_t count : {1, 2, 3, 8}) {
      if (first + count > p.elements) continue;
      std::vector<float> part(static_cast<size_t>(count));
      fill_initial(p, 0.02, 42, part, first);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first)) << first << " " << count;
    }
  }
}

TEST(Init, DependsOnSeedAndName) {
  const auto base = values(parameter("a", 64), 1);
  EXPECT_EQ(values(parameter("a", 64), 1), base);
  EXPECT_NE(values(parameter("a", 64), 2), base);
  EXPECT_NE(values(parameter("b", 64), 1), base);
}

TEST(Init, OnesAndZeros) {
  EXPECT_THAT(values(parameter("n", 5, graph::Init::kOnes), 1), ::testing::Each(1.0f));
  EXPECT_THAT(values(parameter("n", 5, graph::Init::kZeros), 1), ::testing::Each(0.0f));
  const auto decays = values(parameter("n", 10'000, graph::Init::kLogUniform), 1);
  EXPECT_THAT(decays,
              ::testing::Each(::testing::AllOf(::testing::Ge(std::log(0.01f)), ::testing::Le(std::log(16.0f)))));
  const double mean = std::accumulate(decays.begin(), decays.end(), 0.0,
                                      [](double sum, float x) { return sum + std::exp(static_cast<double>(x)); }) /
                      static_cast<double>(decays.size());
  EXPECT_NEAR(mean, 8.005, 0.2);
}

TEST(Init, RefusesARangeOutsideTheParameter) {
  std::vector<float> out(3);
  EXPECT_THROW(fill_initial(parameter("a", 4), 1, 1, out, 2), RunError);
  EXPECT_THROW(fill_initial(parameter("a", 4), 1, 1, out, -1), RunError);
  EXPECT_THROW(fill_initial(parameter("a", 4), 1, 1, out, INT64_MAX), RunError);
}

}  // namespace
}  // namespace lazytrain::model
