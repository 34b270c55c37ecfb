#include "text/samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "text/testing.h"

namespace lazytrain::text {
namespace {

namespace fs = std::filesystem;
using test::Folder;
using test::kEnd;
using test::kEos;
using test::kStart;
using test::pair_encoder;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

Record pair(const std::string& prompt, const std::string& response) {
  Record record;
  record.prompt = prompt;
  record.response = response;
  return record;
}

Record talk(const std::string& messages) {
  Record record;
  record.messages = parse_json(messages, "messages");
  return record;
}

std::vector<Sample> chat_samples(const std::string& source, const Record& record) {
  const auto chat = ChatTemplate::parse(source, "t", {{"eos_token", "</s>"}});
  return make_samples(record, pair_encoder(), &chat, "row");
}

// The learnt part of a sample as text, and the rest.
std::string learnt(const Sample& sample, bool wanted = true) {
  std::string text;
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    if ((sample.is_target[i] != 0) == wanted) text += test::pair_text(sample.ids[i]);
  }
  return text;
}

std::string whole(const Sample& sample) {
  std::string text;
  for (const int32_t id : sample.ids) text += test::pair_text(id);
  return text;
}

TEST(Samples, WithoutTemplateResponseAndEosAreLearnt) {
  const Encoder encoder = pair_encoder();
  const auto samples = make_samples(pair("abc", "de"), encoder, nullptr, "row");
  ASSERT_EQ(samples.size(), 1u);
  // Prompt and response are encoded apart: "c" and "d" do not merge.
  EXPECT_THAT(samples[0].ids, ElementsAre(test::id_of("ab"), test::id_of("c"), test::id_of("de"), kEos));
  EXPECT_THAT(samples[0].is_target, ElementsAre(0, 0, 1, 1));
}

TEST(Samples, EmptyPromptIsLegalAndItsFirstTokenIsNoTarget) {
  auto samples = make_samples(pair("", "abcd"), pair_encoder(), nullptr, "row");
  ASSERT_TRUE(truncate(samples[0], 100));
  EXPECT_THAT(samples[0].ids, ElementsAre(test::id_of("ab"), test::id_of("cd"), kEos));
  EXPECT_THAT(samples[0].is_target, ElementsAre(0, 1, 1));
}

TEST(Samples, EmptyResponseLearnsEosAlone) {
  auto samples = make_samples(pair("ab", ""), pair_encoder(), nullptr, "row");
  ASSERT_TRUE(truncate(samples[0], 100));
  EXPECT_THAT(samples[0].is_target, ElementsAre(0, 1));
  auto nothing = make_samples(pair("", ""), pair_encoder(), nullptr, "row");
  EXPECT_FALSE(truncate(nothing[0], 100));  // EOS alone is the first token
}

TEST(Samples, TruncationTakesTheRightEnd) {
  auto samples = make_samples(pair("aabb", "ccddee"), pair_encoder(), nullptr, "row");  // 2 + 3 + EOS
  Sample exact = samples[0];
  ASSERT_TRUE(truncate(exact, 6));
  EXPECT_EQ(exact.ids.back(), kEos);
  Sample shorter = samples[0];
  ASSERT_TRUE(truncate(shorter, 3));
  EXPECT_EQ(whole(shorter), "aabbcc");
  EXPECT_THAT(shorter.is_target, ElementsAre(0, 0, 1));
  EXPECT_FALSE(truncate(samples[0], 2));
}

TEST(Samples, ChatPromptIsTheGenerationPrompt) {
  const auto samples = chat_samples(kChatMl, pair("Hi", "Yo"));
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(learnt(samples[0], false), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(learnt(samples[0]), "Yo<|im_end|>");
  const auto chat = ChatTemplate::parse(kChatMl, "t", {});
  const auto prompt = pair_encoder().encode(generation_prompt(chat, Json{{{"role", "user"}, {"content", "Hi"}}}));
  ASSERT_LT(prompt.size(), samples[0].ids.size());
  EXPECT_TRUE(std::equal(prompt.begin(), prompt.end(), samples[0].ids.begin()));
  EXPECT_EQ(std::accumulate(samples[0].is_target.begin(),
                            samples[0].is_target.begin() + static_cast<int64_t>(prompt.size()), 0),
            0);
  EXPECT_EQ(samples[0].is_target[prompt.size()], 1);
}

TEST(Samples, EveryAssistantTurnIsLearnt) {
  const auto samples =
      chat_samples(kChatMl, talk(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "a"},
      {"role": "assistant", "content": "one"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "two"},
      {"role": "user", "content": "behind the last turn"}])"));
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(learnt(samples[0]), "one<|im_end|>two<|im_end|>");
  EXPECT_EQ(whole(samples[0]),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\none<|im_end|>\n"
            "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\ntwo<|im_end|>");
}

// A template in the manner of thinking models: history has no thought, generation opens or skips one.
constexpr const char* kThinking =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.last %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n"
    "{% if not enable_thinking %}{{ '\n</think>\n\n' }}{% endif %}{% endif %}";

TEST(Samples, PromptEndsWithTheEmptyThoughtUnlessTheTurnThinks) {
  const auto plain = chat_samples(kThinking, pair("Hi", "Yo"));
  EXPECT_EQ(learnt(plain[0], false), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  EXPECT_EQ(learnt(plain[0]), "Yo<|im_end|>");
  const auto thinks = chat_samples(kThinking, talk(R"([{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "Yo", "reasoning_content": "hm"}])"));
  EXPECT_EQ(learnt(thinks[0], false), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(learnt(thinks[0]), "hm\n</think>\n\nYo<|im_end|>");
}

TEST(Samples, RewrittenHistoryMakesSamplesOfTheirOwn) {
  const auto samples = chat_samples(kThinking, talk(R"([{"role": "user", "content": "a"},
      {"role": "assistant", "content": "one"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "two"}])"));
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(learnt(samples[0]), "one<|im_end|>");
  EXPECT_EQ(learnt(samples[1]), "two<|im_end|>");
  EXPECT_EQ(learnt(samples[1], false),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\none<|im_end|>\n<|im_start|>user\nb<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST(Samples, TurnIsFoundByItsContentWhereOnlyGenerationOpensAThought) {
  const auto samples = chat_samples(
      "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}{{ eos_token }}{% endfor %}"
      "{% if add_generation_prompt %}[assistant]<think>\n{% endif %}",
      pair("4", " 4 "));
  EXPECT_EQ(learnt(samples[0], false), "[user]4</s>[assistant]<think>\n");
  EXPECT_EQ(learnt(samples[0]), "4</s>");
}

TEST(Samples, TurnWithoutEndTokenGetsEos) {
  const std::string source =
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}assistant: {% endif %}";
  const auto samples = chat_samples(source, pair("a", "b"));
  EXPECT_EQ(learnt(samples[0]), "b\n</s>");
  EXPECT_EQ(samples[0].ids.back(), kEos);
  EXPECT_EQ(end_of_turn(ChatTemplate::parse(source, "t", {}), pair_encoder()), kEos);
  EXPECT_EQ(end_of_turn(ChatTemplate::parse(kChatMl, "t", {}), pair_encoder()), kEnd);
}

TEST(Samples, RefusedConversationsNameTheRow) {
  const auto error = [](const std::string& source, const Record& record) -> std::string {
    try {
      chat_samples(source, record);
    } catch (const InputError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error("{{ raise_exception('roles must alternate') }}", pair("a", "b")),
              HasSubstr("row: the chat template of t refuses this conversation: roles must alternate"));
  EXPECT_THAT(error(kChatMl, talk(R"([{"role": "user", "content": "x"}])")),
              HasSubstr("no message is the assistant's"));
  EXPECT_THAT(error("{% if add_generation_prompt %}p{% else %}nothing of it{% endif %}", pair("a", "zz")),
              HasSubstr("does not render the content"));
  EXPECT_THROW(make_samples(talk(R"([{"role": "assistant", "content": "x"}])"), pair_encoder(), nullptr, "row"),
               UsageError);
}

TEST(Samples, DataSetKeepsFileOrderAndCounts) {
  const Folder folder;
  std::string lines;
  for (int i = 0; i < 10000; ++i)
    lines += fmt::format("{{\"prompt\": \"{:06}\", \"response\": \"{}\"}}\n", i, i % 10 == 0 ? "longer text" : "ok");
  folder.write("d.jsonl", lines);
  std::vector<std::vector<int32_t>> tokens;
  for (const int threads : {1, 4}) {
    ThreadPool pool(threads);
    Dataset data(folder.path() / "d.jsonl", {});
    const PreparedData out = prepare_samples(data, pair_encoder(), nullptr, 6, pool);
    EXPECT_EQ(out.counts.rows, 10000);
    EXPECT_EQ(out.counts.samples, 10000);
    EXPECT_EQ(out.counts.truncated, 1000);  // 3 + 6 + 1 tokens
    EXPECT_EQ(out.counts.dropped, 0);
    EXPECT_EQ(out.counts.tokens, 1000 * 6 + 9000 * 5);
    EXPECT_EQ(out.counts.targets, 1000 * 3 + 9000 * 2);
    EXPECT_EQ(out.samples.count(), 10000);
    EXPECT_EQ(out.samples.ids(1234)[1], test::id_of("12"));
    EXPECT_EQ(out.samples.ids(1234)[2], test::id_of("34"));
    tokens.push_back(out.samples.tokens);
  }
  EXPECT_EQ(tokens[0], tokens[1]);
}

TEST(Samples, SamplesWithNothingToLearnAreDropped) {
  const Folder folder;
  ThreadPool pool(2);
  folder.write("d.jsonl",
               "{\"prompt\": \"aaaaaaaa\", \"response\": \"b\"}\n{\"prompt\": \"a\", \"response\": \"b\"}\n");
  Dataset some(folder.path() / "d.jsonl", {});
  const PreparedData out = prepare_samples(some, pair_encoder(), nullptr, 4, pool);
  EXPECT_EQ(out.counts.rows, 2);
  EXPECT_EQ(out.counts.samples, 1);
  EXPECT_EQ(out.counts.dropped, 1);
  EXPECT_EQ(out.counts.truncated, 0);
  folder.write("d.jsonl", "\n{\"prompt\": \"aaaaaaaa\", \"response\": \"b\"}\n");
  Dataset none(folder.path() / "d.jsonl", {});
  try {
    prepare_samples(none, pair_encoder(), nullptr, 4, pool);
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("lines 2"));
  }
}

TEST(Samples, TheFirstBadRowIsNamed) {
  const Folder folder;
  std::string lines;
  for (int i = 0; i < 300; ++i)
    lines += i == 123 || i == 7 || i == 250 ? "{\"prompt\": 5}\n" : "{\"prompt\": \"a\", \"response\": \"b\"}\n";
  folder.write("d.jsonl", lines);
  ThreadPool pool(4);
  Dataset data(folder.path() / "d.jsonl", {});
  try {
    prepare_samples(data, pair_encoder(), nullptr, 4, pool);
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("line 8:"));
  }
}

TEST(Samples, RealTokenizersAndTemplates) {
  const char* set = std::getenv("LAZYTRAIN_SHARED");
  const fs::path shared = set != nullptr ? fs::path(set) : fs::path(LAZYTRAIN_SOURCE_DIR) / "../shared";
  const fs::path file = shared / "data/gsm8k/gsm8k_test_full_1319.jsonl";
  if (!fs::exists(file)) GTEST_SKIP() << "no " << file;
  ThreadPool pool(2);
  for (const char* name : {"qwen2.5", "smollm2"}) {
    const fs::path folder = shared / "data/tokenizers" / name;
    const Tokenizer tokenizer = Tokenizer::load(folder);
    const Encoder encoder = encoder_of(tokenizer);
    const auto chat = ChatTemplate::load(folder);
    ASSERT_TRUE(chat.has_value());
    EXPECT_EQ(end_of_turn(*chat, encoder), tokenizer.id_of("<|im_end|>"));
    Dataset data(file, {});
    const PreparedData out = prepare_samples(data, encoder, &*chat, 4096, pool);
    ASSERT_EQ(out.samples.count(), 1319);
    Dataset again(file, {});
    Record record;
    for (int64_t i = 0; i < 50; ++i) {
      ASSERT_TRUE(again.next(record));
      const Json messages = {{{"role", "user"}, {"content", record.prompt}}};
      const auto prompt = tokenizer.encode(generation_prompt(*chat, messages));
      const auto ids = out.samples.ids(i);
      ASSERT_GT(ids.size(), prompt.size());
      EXPECT_TRUE(std::equal(prompt.begin(), prompt.end(), ids.begin()));
      EXPECT_EQ(tokenizer.decode(ids.subspan(prompt.size())), record.response + "<|im_end|>");
      const auto targets = out.samples.targets(i);
      for (size_t t = 0; t < ids.size(); ++t) ASSERT_EQ(targets[t], t >= prompt.size() ? 1 : 0);
    }
  }
}

}  // namespace
}  // namespace lazytrain::text
