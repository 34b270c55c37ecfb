// Real tokenizers against ids of the reference implementation; needs the shared data folder.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace lazytrain::text {
namespace {

using Ids = std::vector<int32_t>;

class SharedTokenizers : public testing::Test {
 protected:
  void SetUp() override {
    const char* shared = std::getenv("LAZYTRAIN_SHARED");
    folder_ = shared != nullptr ? std::filesystem::path(shared)
                                : std::filesystem::path(LAZYTRAIN_SOURCE_DIR).parent_path() / "shared";
    folder_ = folder_ / "data" / "tokenizers";
    if (!std::filesystem::exists(folder_)) GTEST_SKIP() << folder_ << " is not there; set LAZYTRAIN_SHARED";
  }
  std::filesystem::path folder_;
};

TEST_F(SharedTokenizers, EveryCase) {
  std::map<std::string, Tokenizer> tokenizers;
  for (const char* name : {"qwen2.5", "smollm2"}) tokenizers.emplace(name, Tokenizer::load(folder_ / name));
  const std::string lines = read_file(folder_ / "cases.jsonl", int64_t{1} << 26);
  int count = 0;
  for (size_t at = 0; at < lines.size(); ++count) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    const Json line = parse_json(std::string_view(lines).substr(at, end - at), "cases.jsonl");
    at = end + 1;
    const Tokenizer& tokenizer = tokenizers.at(line["tokenizer"].get<std::string>());
    const auto ids = tokenizer.encode(line["text"].get<std::string>());
    EXPECT_EQ(ids, line["ids"].get<Ids>()) << "line " << count + 1 << ": " << line["text"];
    EXPECT_EQ(tokenizer.decode(line["ids"].get<Ids>()), line["decoded"].get<std::string>()) << "line " << count + 1;
  }
  EXPECT_EQ(count, 300);
}

TEST_F(SharedTokenizers, Qwen25) {
  const Tokenizer t = Tokenizer::load(folder_ / "qwen2.5");
  EXPECT_EQ(t.encode("Hello world"), (Ids{9707, 1879}));
  EXPECT_EQ(t.encode(" Hello world"), (Ids{21927, 1879}));
  EXPECT_EQ(t.encode("->"), (Ids{405}));
  EXPECT_EQ(t.encode("(x):\n"), (Ids{2075, 982}));
  EXPECT_EQ(t.vocab_size(), 151665);
  EXPECT_EQ(t.eos_id(), 151645);
  EXPECT_EQ(t.pad_id(), 151643);
  EXPECT_EQ(t.bos_id(), std::nullopt);
  EXPECT_EQ(t.special_tokens(),
            (std::map<std::string, std::string>{{"eos_token", "<|im_end|>"}, {"pad_token", "<|endoftext|>"}}));
  const Ids control = {151644, 151657, 151658};  // <tool_call> and </tool_call> are added, but not special
  EXPECT_EQ(t.encode("<|im_start|><tool_call></tool_call>"), control);
  EXPECT_EQ(t.decode(control, true), "<tool_call></tool_call>");
  const auto plain = t.encode("<|im_end|>", {.parse_special = false});
  EXPECT_EQ(std::count_if(plain.begin(), plain.end(), [](int32_t id) { return id >= 151643; }), 0);
  EXPECT_EQ(t.decode(plain), "<|im_end|>");
  EXPECT_EQ(t.decode(Ids{151665, 160000}), "");
}

TEST_F(SharedTokenizers, SmolLm2) {
  const Tokenizer t = Tokenizer::load(folder_ / "smollm2");
  EXPECT_EQ(t.vocab_size(), 49152);
  EXPECT_EQ(t.eos_id(), 2);
  EXPECT_EQ(t.bos_id(), 1);
  EXPECT_EQ(t.encode("!\x04!"), t.encode("!!"));
  EXPECT_EQ(t.encode("\x04"), Ids{});
  EXPECT_EQ(t.decode(t.encode("\xF1\x80\x80\x80")), "\uFFFD\uFFFD\uFFFD") << "the first byte has no token";
}

TEST_F(SharedTokenizers, LongTextsTakeLinearTime) {
  for (const char* name : {"qwen2.5", "smollm2"}) {
    const Tokenizer t = Tokenizer::load(folder_ / name);
    for (const std::string unit :
         {"a", " ", "\n", "1", "!", "é", "e\u0301", "\u0300\u0316", "'s", "\xF0\x9F\x99\x82"}) {
      std::string text;
      while (text.size() < 300'000) text += unit;
      const auto ids = t.encode(text);
      EXPECT_FALSE(ids.empty());
      if (unit.size() == 1) {
        EXPECT_EQ(t.decode(ids), text);
      }
    }
  }
}

}  // namespace
}  // namespace lazytrain::text
