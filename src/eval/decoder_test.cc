#include "eval/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "eval/loss.h"
#include "eval/testing.h"

namespace lazytrain::eval {
namespace {

using testing::ModelFolder;
using testing::random_ids;

std::vector<float> row_of(const TensorView& logits, int64_t row) {
  return {logits.row<float>(row), logits.row<float>(row) + logits.cols};
}

size_t argmax(const std::vector<float>& values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

double relative_error(const std::vector<float>& actual, const std::vector<float>& expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    difference += std::pow(static_cast<double>(actual[i]) - expected[i], 2);
    norm += std::pow(expected[i], 2);
  }
  return std::sqrt(difference / norm);
}

double nll_of(const std::vector<float>& logits, int32_t target) {
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l));
  return std::log(sum) - logits[static_cast<size_t>(target)];
}

struct Model {
  const char* name;
  Json json;
};

class DecoderTest : public ::testing::TestWithParam<Model> {
 protected:
  ModelFolder folder_{GetParam().json};
  ThreadPool pool_{2};
  InferenceModel model_{folder_.path(), DType::kF32, pool_};

  // Logits behind the last token, with nothing cached.
  std::vector<float> recomputed(const std::vector<int32_t>& ids) {
    const auto count = static_cast<int64_t>(ids.size());
    Decoder decoder(model_, pool_, {.sequences = 1, .prefill_tokens = count, .cache_rows = count});
    const std::span<const int32_t> prompt = ids;
    SequenceRows rows;
    return row_of(decoder.prefill(std::span(&prompt, 1), std::span(&rows, 1)), 0);
  }
};

TEST_P(DecoderTest, DecodingWithTheCacheIsTheWholeForwardPass) {
  const std::vector<int64_t> lengths = {1, 5, 70, 17};
  constexpr int64_t kSteps = 6;
  Decoder decoder(model_, pool_, {.sequences = 4, .prefill_tokens = 93, .cache_rows = 93 + 4 * kSteps});
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::span<const int32_t>> prompts;
  std::vector<SequenceRows> sequences;
  for (const int64_t length : lengths) {
    ids.push_back(random_ids(length, ids.size()));
    sequences.push_back({decoder.cache().reserve(length + kSteps).value(), 0});
  }
  for (const auto& prompt : ids) prompts.emplace_back(prompt);
  TensorView logits = decoder.prefill(prompts, sequences);
  for (int64_t step = 0;; ++step) {
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::vector<float> expected = recomputed(ids[i]);
      const std::vector<float> actual = row_of(logits, static_cast<int64_t>(i));
      EXPECT_LT(relative_error(actual, expected), 1e-5) << "sequence " << i << " step " << step;
      EXPECT_EQ(argmax(actual), argmax(expected));
    }
    if (step == kSteps) break;
    if (step == 3) {  // one leaves: the others must not notice
      ids.erase(ids.begin() + 1);
      decoder.cache().release(sequences[1].first);
      sequences.erase(sequences.begin() + 1);
    }
    std::vector<int32_t> next;
    for (auto& sequence : ids) {
      sequence.push_back(static_cast<int32_t>((static_cast<size_t>(sequence.front()) + sequence.size() * 31) % 300));
      next.push_back(sequence.back());
    }
    logits = decoder.decode(next, sequences);
  }
}

// The loss op computes log-likelihoods its own way, so it judges the logits that are sampled from.
TEST_P(DecoderTest, LogitsHaveTheLikelihoodsOfTheLoss) {
  const std::vector<int32_t> ids = random_ids(40, 9);
  Decoder decoder(model_, pool_, {.sequences = 1, .prefill_tokens = 10, .cache_rows = 40});
  const std::span<const int32_t> prompt = std::span(ids).first(10);
  SequenceRows rows;
  TensorView logits = decoder.prefill(std::span(&prompt, 1), std::span(&rows, 1));
  double nll = 0;
  for (size_t t = 10; t < ids.size(); ++t) {
    nll += nll_of(row_of(logits, 0), ids[t]);
    logits = decoder.decode(std::span(ids).subspan(t, 1), std::span(&rows, 1));
  }
  text::TokenSet samples;
  text::Sample sample{ids, std::vector<uint8_t>(ids.size(), 1)};
  std::fill_n(sample.is_target.begin(), 10, uint8_t{0});
  samples.add(sample);
  const ops::LossSum loss = loss_of(model_, pool_, samples);
  EXPECT_EQ(loss.count, 30);
  EXPECT_NEAR(loss.nll, nll, 1e-4);
}

// Batches of the loss are cut by tokens; where must not matter.
TEST_P(DecoderTest, LossIsTheSumOverSamples) {
  text::TokenSet all;
  double sum = 0;
  for (uint64_t i = 0; i < 40; ++i) {
    const std::vector<int32_t> ids = random_ids(20 + static_cast<int64_t>(i * 7 % 100), i);
    text::Sample sample{ids, std::vector<uint8_t>(ids.size(), 1)};
    sample.is_target[0] = 0;
    all.add(sample);
    text::TokenSet one;
    one.add(sample);
    sum += loss_of(model_, pool_, one).nll;
  }
  ASSERT_GT(all.offsets.back(), 2048);
  const ops::LossSum loss = loss_of(model_, pool_, all);
  EXPECT_NEAR(loss.nll, sum, 1e-5 * sum);
  EXPECT_EQ(loss.count, all.offsets.back() - 40);
}

INSTANTIATE_TEST_SUITE_P(Families, DecoderTest,
                         ::testing::Values(Model{"Qwen2", testing::qwen2_json()},
                                           Model{"Llama", testing::llama_json()}),
                         [](const auto& names) { return std::string(names.param.name); });

TEST(KvCache, RangesAreReusedAndNeverOverlap) {
  const graph::Graph graph = model::build_graph(model::parse_config(testing::llama_json(), "config.json"));
  KvCache cache(graph, 100, DType::kF32);
  EXPECT_EQ(cache.bytes(), 2 * 2 * 100 * 2 * 16 * 4);  // 2 layers, keys and values, 2 heads of 16, fp32
  EXPECT_EQ(cache.reserve(40), 0);
  EXPECT_EQ(cache.reserve(30), 40);
  EXPECT_EQ(cache.reserve(31), std::nullopt);
  EXPECT_EQ(cache.reserve(30), 70);
  cache.release(0);
  EXPECT_EQ(cache.reserve(41), std::nullopt);
  EXPECT_EQ(cache.reserve(10), 0);
  EXPECT_EQ(cache.reserve(30), 10);
  cache.release(40);
  cache.release(70);
  EXPECT_EQ(cache.reserve(60), 40);
  const auto* first = cache.values(1, 10, 1).row<float>(0);
  EXPECT_EQ(cache.values(1, 11, 1).row<float>(0) - first, 32);
}

TEST(InferenceModel, ReadsWeightsInBothTypes) {
  const ModelFolder folder(testing::llama_json());
  ThreadPool pool(2);
  const InferenceModel exact(folder.path(), DType::kF32, pool);
  const InferenceModel rounded(folder.path(), DType::kBF16, pool);
  EXPECT_EQ(exact.bytes(), 2 * rounded.bytes());
  for (int u = 0; u < 4; ++u) {
    const auto& params = exact.graph().units[static_cast<size_t>(u)].params;
    for (int p = 0; p < static_cast<int>(params.size()); ++p) {
      std::vector<float> expected(static_cast<size_t>(params[static_cast<size_t>(p)].elements));
      model::fill_initial(params[static_cast<size_t>(p)], 0.3, 1, expected);
      const TensorView fp32 = exact.weight(u, p), bf = rounded.weight(u, p);
      for (size_t e = 0; e < expected.size(); e += 97) {
        ASSERT_EQ(fp32.row<float>(0)[e], expected[e]) << params[static_cast<size_t>(p)].name;
        ASSERT_EQ(bf.row<bf16>(0)[e], split_master(expected[e]).hi);
      }
    }
  }
}

TEST(InferenceModel, NamesTheTensorThatIsMissingOrMisshapen) {
  ThreadPool pool(1);
  const auto message_of = [&](const ModelFolder& folder) -> std::string {
    try {
      const InferenceModel model(folder.path(), DType::kF32, pool);
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  const ModelFolder missing(testing::llama_json(), 1, "model.layers.1.mlp.up_proj.weight");
  EXPECT_NE(message_of(missing).find("model.layers.1.mlp.up_proj.weight"), std::string::npos);
  const ModelFolder misshapen(testing::llama_json());
  misshapen.write("config.json", testing::with(testing::llama_json(), "intermediate_size", "112").dump());
  const std::string message = message_of(misshapen);
  EXPECT_NE(message.find("mlp.gate_proj.weight"), std::string::npos) << message;
  EXPECT_NE(message.find("[112, 48]"), std::string::npos) << message;
}

}  // namespace
}  // namespace lazytrain::eval
