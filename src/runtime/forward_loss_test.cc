#include "runtime/forward_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/rng.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/lm_head_loss.h"
#include "runtime/master_weights.h"

namespace lazytrain::runtime {
namespace {

constexpr int64_t kHidden = 24;
constexpr int64_t kVocabulary = 50;

// embedding -> one linear map with bias -> tied or untied head.
graph::Graph linear_model(bool tied) {
  graph::Graph graph;
  graph.family = "test";
  graph.hidden = kHidden;
  graph.vocabulary = kVocabulary;
  graph.initializer_range = 0.5;
  graph.tied = tied;
  graph::UnitBuilder embedding("embedding", graph::UnitKind::kEmbedding, "");
  const auto rows = embedding.add(std::make_shared<ops::Embedding>(kVocabulary, kHidden), {}, "embed");
  graph.units.push_back(embedding.finish(rows[0]));
  graph::UnitBuilder layer("layer.0", graph::UnitKind::kLayer, "");
  const auto x = layer.boundary(kHidden);
  const auto y = layer.add(std::make_shared<ops::Linear>(kHidden, kHidden, true), {x}, "map");
  graph.units.push_back(layer.finish(y[0]));
  graph::UnitBuilder head("head", graph::UnitKind::kHead, "");
  const auto h = head.boundary(kHidden);
  const auto loss = std::make_shared<ops::LmHeadLoss>(kHidden, kVocabulary);
  if (tied) {
    head.add_tied(loss, {h}, "embed.weight");
  } else {
    head.add(loss, {h}, "head");
  }
  graph.units.push_back(head.finish(-1));
  return graph;
}

float weight(const ModelState& state, int unit, int parameter, int64_t element, DType compute) {
  const optim::AdamWArrays a = state.arrays(unit, parameter);
  return compute == DType::kBF16 ? to_float(a.hi[element]) : merge_master({a.hi[element], a.lo[element]});
}

// The same model in double, from its formulas.
double reference_nll(const ModelState& state, const std::vector<int32_t>& ids, const std::vector<int32_t>& targets,
                     DType compute) {
  double nll = 0;
  for (size_t t = 0; t < ids.size(); ++t) {
    if (targets[t] < 0) continue;
    std::vector<double> y(kHidden), logits(kVocabulary);
    for (int64_t o = 0; o < kHidden; ++o) {
      y[static_cast<size_t>(o)] = weight(state, 1, 1, o, compute);
      for (int64_t i = 0; i < kHidden; ++i) {
        y[static_cast<size_t>(o)] += static_cast<double>(weight(state, 1, 0, o * kHidden + i, compute)) *
                                     weight(state, 0, 0, ids[t] * kHidden + i, compute);
      }
    }
    double sum = 0;
    for (int64_t v = 0; v < kVocabulary; ++v) {
      double& logit = logits[static_cast<size_t>(v)];
      for (int64_t i = 0; i < kHidden; ++i)
        logit += y[static_cast<size_t>(i)] * weight(state, 2, 0, v * kHidden + i, compute);
      sum += std::exp(logit);
    }
    nll += std::log(sum) - logits[static_cast<size_t>(targets[t])];
  }
  return nll;
}

class ForwardLossTest : public ::testing::TestWithParam<std::tuple<DType, bool>> {};

TEST_P(ForwardLossTest, IsTheLossOfTheFormulas) {
  const auto [compute, tied] = GetParam();
  const graph::Graph graph = linear_model(tied);
  ThreadPool pool(2);
  ModelState state(graph, compute);
  state.initialize(7, &pool);
  for (int64_t i = 0; i < kHidden; ++i) {  // a bias starts at zero, which would hide whether it is read
    const SplitMaster split = split_master(static_cast<float>(0.1 * static_cast<double>(i) - 1));
    state.arrays(1, 1).hi[i] = split.hi;
    state.arrays(1, 1).lo[i] = split.lo;
  }
  ForwardLoss forward(graph, {.tokens = 40, .context = 20}, compute, pool);
  MasterWeights weights(state, compute, pool);
  for (const int64_t count : {40, 7}) {  // the second batch is smaller than what memory was laid out for
    std::vector<int32_t> ids, positions, targets;
    const CounterRng rng(1, static_cast<uint64_t>(count));
    for (int64_t t = 0; t < count; ++t) {
      ids.push_back(static_cast<int32_t>(rng.below(static_cast<uint64_t>(2 * t), kVocabulary)));
      targets.push_back(t % 3 == 0 ? -1
                                   : static_cast<int32_t>(rng.below(static_cast<uint64_t>(2 * t + 1), kVocabulary)));
      positions.push_back(static_cast<int32_t>(t));
    }
    const std::vector<int32_t> starts = {0, static_cast<int32_t>(count)};
    const ops::LossSum loss = forward.run({count, ids, positions, targets, starts},
                                          [&](int unit, int parameter) { return weights.view(unit, parameter); });
    const double expected = reference_nll(state, ids, targets, compute);
    EXPECT_EQ(loss.count, std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; }));
    EXPECT_NEAR(loss.nll, expected, std::abs(expected) * (compute == DType::kBF16 ? 5e-3 : 1e-6));
  }
}

INSTANTIATE_TEST_SUITE_P(AllDtypes, ForwardLossTest,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kBF16), ::testing::Bool()),
                         [](const auto& names) {
                           return std::string(name_of(std::get<0>(names.param))) +
                                  (std::get<1>(names.param) ? "Tied" : "Untied");
                         });

TEST(ForwardLoss, AllocatesWhatItSaid) {
  const graph::Graph graph = linear_model(false);
  ThreadPool pool(2);
  const graph::Dims dims{.tokens = 33, .context = 33};
  const ForwardLoss forward(graph, dims, DType::kF32, pool);
  EXPECT_EQ(forward.bytes(), ForwardLoss::bytes_needed(graph, dims, DType::kF32, 2));
  EXPECT_GE(forward.bytes(), 2 * 33 * kHidden * 4);
}

}  // namespace
}  // namespace lazytrain::runtime
