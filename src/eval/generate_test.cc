#include "eval/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "eval/sampler.h"
#include "eval/testing.h"

namespace lazytrain::eval {
namespace {

using testing::ModelFolder;
using testing::random_prompts;
using Ids = std::vector<int32_t>;

std::vector<Ids> ids_of(const std::vector<Generation>& generations) {
  std::vector<Ids> ids;
  for (const Generation& g : generations) ids.push_back(g.ids);
  return ids;
}

class GenerateTest : public ::testing::Test {
 protected:
  std::vector<Generation> run(const std::vector<Ids>& prompts, const GenerateOptions& options) {
    return generate(model_, pool_, prompts, options);
  }

  ModelFolder folder_{testing::qwen2_json()};  // 128 positions
  ThreadPool pool_{2};
  InferenceModel model_{folder_.path(), DType::kF32, pool_};
};

TEST_F(GenerateTest, GreedyTextDoesNotDependOnTheBatch) {
  const auto prompts = random_prompts({3, 30, 1, 8, 60, 2, 17, 5, 11});
  const auto alone = ids_of(run(prompts, {.max_new_tokens = 20, .batch = 1}));
  for (const Ids& ids : alone) EXPECT_EQ(ids.size(), 20u);
  EXPECT_NE(alone[0], alone[1]);
  for (const int64_t batch : {2, 4, 9, 100}) {
    EXPECT_EQ(ids_of(run(prompts, {.max_new_tokens = 20, .batch = batch})), alone) << "batch " << batch;
  }
}

TEST_F(GenerateTest, MorePromptsThanOnePrefillTakes) {
  const auto prompts = random_prompts(std::vector<int64_t>(30, 90));  // 2700 tokens
  const auto all = ids_of(run(prompts, {.max_new_tokens = 3, .batch = 30}));
  EXPECT_EQ(ids_of(run({prompts[29]}, {.max_new_tokens = 3}))[0], all[29]);
}

TEST_F(GenerateTest, AStopIdEndsItsSequenceAlone) {
  const auto prompts = random_prompts({3, 30, 8});
  const auto free = ids_of(run(prompts, {.max_new_tokens = 16}));
  const int32_t stop = free[1][4];
  const auto stopped = run(prompts, {.max_new_tokens = 16, .stop_ids = {299999, stop}});
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto at = std::find(free[i].begin(), free[i].end(), stop);
    EXPECT_EQ(stopped[i].ids, Ids(free[i].begin(), at)) << i;
    EXPECT_EQ(stopped[i].reason, at == free[i].end() ? StopReason::kMaxNewTokens : StopReason::kStopId) << i;
  }
  EXPECT_EQ(stopped[1].reason, StopReason::kStopId);
}

TEST_F(GenerateTest, TheContextEndsASequence) {
  const auto results = run(random_prompts({125, 127, 128, 140, 4}), {.max_new_tokens = 10, .batch = 2});
  const std::vector<std::pair<size_t, StopReason>> expected = {{3, StopReason::kContext},
                                                               {1, StopReason::kContext},
                                                               {0, StopReason::kContext},
                                                               {0, StopReason::kContext},
                                                               {10, StopReason::kMaxNewTokens}};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(results[i].ids.size(), expected[i].first) << i;
    EXPECT_EQ(results[i].reason, expected[i].second) << i;
  }
  EXPECT_TRUE(run({}, {}).empty());
  EXPECT_EQ(run(random_prompts({4}), {.max_new_tokens = std::numeric_limits<int64_t>::max()})[0].ids.size(), 124u);
}

TEST_F(GenerateTest, StreamsEveryTokenInOrder) {
  std::vector<Ids> streamed(3);
  std::vector<int64_t> ended;
  const auto results =
      run(random_prompts({3, 9, 4}),
          {.max_new_tokens = 7,
           .batch = 2,
           .on_token = [&](int64_t prompt, int32_t id) { streamed[static_cast<size_t>(prompt)].push_back(id); },
           .on_end = [&](int64_t count) { ended.push_back(count); }});
  EXPECT_EQ(streamed, ids_of(results));
  EXPECT_EQ(ended, (std::vector<int64_t>{1, 2, 3}));
}

TEST_F(GenerateTest, SamplingFollowsTheSeedAndNothingElse) {
  const auto prompts = random_prompts({3, 30, 8, 3});
  const GenerateOptions options{.max_new_tokens = 20, .temperature = 1.5, .seed = 3, .batch = 4};
  const auto first = ids_of(run(prompts, options));
  EXPECT_EQ(ids_of(run(prompts, options)), first);
  GenerateOptions other = options;
  other.batch = 1;
  EXPECT_EQ(ids_of(run(prompts, other)), first);
  other.seed = 4;
  EXPECT_NE(ids_of(run(prompts, other)), first);
  other.temperature = 1e-6;
  EXPECT_EQ(ids_of(run(prompts, other)), ids_of(run(prompts, {.max_new_tokens = 20})));
  // The same prompt twice draws twice.
  const auto twice = ids_of(run({prompts[0], prompts[0]}, options));
  EXPECT_NE(twice[0], twice[1]);
}

TEST_F(GenerateTest, RefusesWhatItCannotDo) {
  EXPECT_THROW(run({{}}, {}), UsageError);
  EXPECT_THROW(run({{300}}, {}), UsageError);
  EXPECT_THROW(run({{-1}}, {}), UsageError);
  EXPECT_THROW(run({{1}}, {.max_new_tokens = 0}), UsageError);
  EXPECT_THROW(run({{1}}, {.batch = 0}), UsageError);
  EXPECT_THROW(run({{1}}, {.temperature = -1}), UsageError);
  EXPECT_THROW(run({{1}}, {.temperature = std::nan("")}), UsageError);
}

TEST(Generate, ComputesInBf16) {
  const ModelFolder folder(testing::llama_json());
  ThreadPool pool(2);
  const InferenceModel model(folder.path(), DType::kBF16, pool);
  const auto results = generate(model, pool, random_prompts({5, 40}), {.max_new_tokens = 12});
  EXPECT_EQ(results[0].ids.size(), 12u);
  EXPECT_EQ(results[1].ids.size(), 12u);
}

TEST(Sampler, GreedyTakesTheFirstOfEqualLogits) {
  const std::vector<float> logits = {1, 3, -2, 3, 3};
  EXPECT_EQ(Sampler{}.next(logits, 0, 0), 1);
}

TEST(Sampler, DrawsAsTheSoftmaxSays) {
  const std::vector<float> logits = {std::log(1.0f), std::log(4.0f), -INFINITY, std::log(16.0f)};
  const Sampler sampler{.temperature = 2, .seed = 11};  // weights 1, 2, 0, 4
  std::vector<int> counts(4);
  constexpr int kDraws = 70000;
  for (int i = 0; i < kDraws; ++i) {
    ++counts[static_cast<size_t>(sampler.next(logits, static_cast<uint64_t>(i % 7), static_cast<uint64_t>(i)))];
  }
  EXPECT_EQ(counts[2], 0);
  EXPECT_NEAR(counts[0], 10000, 500);  // five standard deviations are 463
  EXPECT_NEAR(counts[1], 20000, 600);
  EXPECT_NEAR(counts[3], 40000, 660);
}

TEST(Sampler, BrokenLogitsAreAnError) {
  for (const float bad : {std::nanf(""), INFINITY}) {
    const std::vector<float> logits = {1, bad, 2};
    EXPECT_THROW(Sampler{}.next(logits, 0, 0), RunError);
    EXPECT_THROW((Sampler{.temperature = 1}.next(logits, 0, 0)), RunError);
  }
  const std::vector<float> none = {-INFINITY, -INFINITY};
  EXPECT_THROW(Sampler{}.next(none, 0, 0), RunError);
}

}  // namespace
}  // namespace lazytrain::eval
