// SmolLM2-135M-Instruct against texts that transformers generated from it. The weights (270 MB) are not in the source
// tree: LAZYTRAIN_SMOLLM2 names their folder.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/json.h"
#include "eval/generate.h"
#include "text/chat_template.h"
#include "text/samples.h"
#include "text/tokenizer.h"

namespace lazytrain::eval {
namespace {

TEST(SmolLm2, GreedyChatInFp32IsTheTextOfTransformers) {
  const char* folder = std::getenv("LAZYTRAIN_SMOLLM2");
  if (folder == nullptr || !std::filesystem::exists(std::filesystem::path(folder) / "config.json")) {
    GTEST_SKIP() << "LAZYTRAIN_SMOLLM2 names no folder with SmolLM2-135M-Instruct";
  }
  const Json golden = read_json(LAZYTRAIN_SOURCE_DIR "/src/eval/testdata/smollm2_greedy.json");
  const text::Tokenizer tokenizer = text::Tokenizer::load(folder);
  const auto chat = text::ChatTemplate::load(folder);
  ASSERT_TRUE(chat.has_value());
  ThreadPool pool(2);
  const InferenceModel model(folder, DType::kF32, pool);
  std::vector<std::vector<int32_t>> prompts;
  for (const Json& c : golden["cases"]) {
    prompts.push_back(tokenizer.encode(text::generation_prompt(*chat, c["messages"])));
    EXPECT_EQ(prompts.back(), c["prompt_ids"].get<std::vector<int32_t>>());
  }
  const auto results = generate(
      model, pool, prompts,
      {.max_new_tokens = golden["max_new_tokens"].get<int64_t>(), .batch = 8, .stop_ids = tokenizer.stop_ids()});
  ASSERT_EQ(results.size(), 20u);
  for (size_t i = 0; i < results.size(); ++i) {
    const Json& c = golden["cases"][i];
    EXPECT_EQ(tokenizer.decode(results[i].ids, true), c["text"].get<std::string>()) << "prompt " << i;
    EXPECT_EQ(results[i].reason == StopReason::kStopId, c["ended"].get<bool>()) << "prompt " << i;
  }
}

}  // namespace
}  // namespace lazytrain::eval
