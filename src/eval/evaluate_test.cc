#include "eval/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "eval/exact_match.h"
#include "eval/loss.h"
#include "eval/prompt_format.h"
#include "eval/testing.h"
#include "text/encoder.h"
#include "text/samples.h"
#include "text/tokenizer_fixture.h"

namespace lazytrain::eval {
namespace {

using testing::ModelFolder;

constexpr const char* kTemplate =
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}";

class EvaluateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.write("tokenizer.json", text::TokenizerFixture().text());
    folder_.write("tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  }
  void write_data(const std::vector<std::string>& responses) {
    std::string lines;
    for (size_t i = 0; i < responses.size(); ++i) {
      lines += Json({{"prompt", prompt(i)}, {"response", responses[i]}}).dump() + "\n";
    }
    folder_.write("data.jsonl", lines);
  }
  static std::string prompt(size_t i) { return "hello, how much is " + std::to_string(i * i) + "?"; }
  EvalOptions options(bool chat) const {
    return {.model = folder_.path(),
            .data = folder_.path() / "data.jsonl",
            .chat_template = chat,
            .compute = DType::kF32,
            .batch = 2,
            .max_new_tokens = 12};
  }
  // What the model says, so that a data file can be made that it answers rightly.
  std::vector<std::string> completions(size_t count, bool chat) {
    write_data(std::vector<std::string>(count, "y"));
    std::vector<std::string> texts;
    for (const Question& q : evaluate(options(chat), pool_).questions) texts.push_back(q.completion);
    return texts;
  }

  ModelFolder folder_{testing::llama_json(), 8};
  ThreadPool pool_{2};
};

TEST_F(EvaluateTest, CountsRightAndWrongAnswers) {
  std::vector<std::string> texts = completions(5, false);
  texts[1] = "The answer is: 12345";
  texts[4] = "#### 678";
  write_data(texts);
  std::vector<std::pair<int64_t, int64_t>> progress;
  EvalOptions o = options(false);
  o.on_progress = [&](int64_t answered, int64_t total) { progress.emplace_back(answered, total); };
  const EvalResult result = evaluate(o, pool_);
  EXPECT_EQ(result.total, 5);
  EXPECT_EQ(result.correct, 3);
  EXPECT_DOUBLE_EQ(result.exact_match, 0.6);
  EXPECT_EQ(progress.size(), 5u);
  EXPECT_EQ(progress.back(), std::pair(int64_t{5}, int64_t{5}));
  for (size_t i = 0; i < 5; ++i) {
    const Question& q = result.questions[i];
    EXPECT_EQ(q.correct, i != 1 && i != 4) << q.completion;
    EXPECT_EQ(q.index, static_cast<int64_t>(i));
    EXPECT_EQ(q.prompt, prompt(i));
  }
  EXPECT_EQ(result.questions[1].gold, "12345");
}

TEST_F(EvaluateTest, LossIsThatOfTrainingSamples) {
  const std::vector<std::string> responses = {"a", "hello hello", "The answer is: 5"};
  write_data(responses);
  const EvalResult result = evaluate(options(false), pool_);
  // Rebuilt from the rule: encode(prompt) + encode(response) + EOS, response and EOS learnt.
  const text::Tokenizer tokenizer = text::Tokenizer::load(folder_.path());
  text::TokenSet samples;
  int64_t learnt = 0;
  for (size_t i = 0; i < responses.size(); ++i) {
    text::Sample sample{tokenizer.encode(prompt(i)), {}};
    sample.is_target.assign(sample.ids.size(), 0);
    for (const int32_t id : tokenizer.encode(responses[i])) sample.ids.push_back(id);
    sample.ids.push_back(*tokenizer.eos_id());
    sample.is_target.resize(sample.ids.size(), 1);
    learnt += std::count(sample.is_target.begin(), sample.is_target.end(), 1);
    samples.add(sample);
  }
  const InferenceModel model(folder_.path(), DType::kF32, pool_);
  const ops::LossSum loss = loss_of(model, pool_, samples);
  EXPECT_EQ(loss.count, learnt);
  EXPECT_NEAR(result.loss, loss.nll / static_cast<double>(loss.count), 1e-9);
  EXPECT_GT(result.loss, 1);
}

TEST_F(EvaluateTest, LimitTakesTheFirstRows) {
  write_data({"a", "b", "c", "d"});
  EvalOptions o = options(false);
  o.limit = 2;
  const EvalResult two = evaluate(o, pool_);
  EXPECT_EQ(two.total, 2);
  write_data({"a", "b"});
  o.limit = 0;
  EXPECT_EQ(evaluate(o, pool_).loss, two.loss);
}

TEST_F(EvaluateTest, UsesTheChatTemplateOfTheModel) {
  write_data({"a", "b"});
  const EvalResult plain = evaluate(options(true), pool_);  // there is none yet
  EXPECT_EQ(plain.loss, evaluate(options(false), pool_).loss);
  folder_.write("chat_template.jinja", kTemplate);
  const EvalResult chat = evaluate(options(true), pool_);
  EXPECT_NE(chat.loss, plain.loss);
  EXPECT_EQ(evaluate(options(false), pool_).loss, plain.loss);

  const PromptFormat format(folder_.path(), true);
  EXPECT_EQ(format.tokenizer().decode(format.conversation(parse_json(R"([{"role": "user", "content": "x"}])", "m"))),
            "<|start|>user\nx<|end|>\n<|start|>assistant\n");
  EXPECT_EQ(format.stop_ids(), (std::vector<int32_t>{*format.tokenizer().id_of("<|end|>")}));
}

TEST_F(EvaluateTest, TheLastTurnOfAConversationIsAsked) {
  folder_.write("chat_template.jinja", kTemplate);
  folder_.write("data.jsonl",
                R"({"messages": [{"role": "user", "content": "q1"}, {"role": "assistant", "content": "#### 1"}, )"
                R"({"role": "user", "content": "q2"}, {"role": "assistant", "content": "#### 2"}]})");
  const EvalResult result = evaluate(options(true), pool_);
  ASSERT_EQ(result.total, 1);
  EXPECT_EQ(result.questions[0].prompt, "q2");
  EXPECT_EQ(result.questions[0].gold, "2");
}

TEST_F(EvaluateTest, PromptsThatCannotBeContinuedAreWrong) {
  const std::string filler(200, 'z');  // 128 positions
  folder_.write("data.jsonl", Json({{"prompt", filler}, {"response", "1"}}).dump() + "\n" +
                                  Json({{"prompt", ""}, {"response", "2"}}).dump() + "\n");
  const EvalResult result = evaluate(options(false), pool_);
  EXPECT_EQ(result.total, 2);
  EXPECT_EQ(result.correct, 0);
  EXPECT_EQ(result.questions[0].completion, "");
  EXPECT_EQ(result.questions[1].completion, "");
  folder_.write("data.jsonl", Json({{"prompt", filler}, {"response", "1"}}).dump() + "\n");
  EXPECT_THROW(evaluate(options(false), pool_), InputError);  // nothing to learn
}

TEST_F(EvaluateTest, WritesALineAQuestion) {
  const std::string lines = to_jsonl({{0, "p", "c\xff", "5", "5", true}, {1, "q\n", "", "", "6", false}});
  std::istringstream in(lines);
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line,
            "{\"index\":0,\"prompt\":\"p\",\"completion\":\"c\xEF\xBF\xBD\",\"predicted\":\"5\",\"gold\":\"5\","
            "\"correct\":true}");
  std::getline(in, line);
  EXPECT_EQ(line, R"({"index":1,"prompt":"q\n","completion":"","predicted":null,"gold":"6","correct":false})");
  EXPECT_FALSE(std::getline(in, line));
}

TEST_F(EvaluateTest, StreamsWholeCharacters) {
  const PromptFormat format(folder_.path(), false);
  const InferenceModel model(folder_.path(), DType::kF32, pool_);
  const auto prompt = format.plain("hello", true);
  std::string streamed;
  const Generation generation =
      stream(model, pool_, format, prompt, {.max_new_tokens = 30}, [&](std::string_view piece) {
        EXPECT_FALSE(piece.empty());
        streamed += piece;
      });
  EXPECT_EQ(streamed, format.tokenizer().decode(generation.ids, true));
  EXPECT_FALSE(streamed.empty());
  EXPECT_THROW(stream(model, pool_, format, std::vector<int32_t>(128, 1), {}, [](std::string_view) {}), UsageError);
}

}  // namespace
}  // namespace lazytrain::eval
