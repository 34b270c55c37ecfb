#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "base/error.h"
#include "base/rng.h"
#include "text/tokenizer_fixture.h"
#include "text/utf8.h"

namespace lazytrain::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Ids = std::vector<int32_t>;

constexpr int32_t kLl = 256, kHe = 257, kHello = 259, kSpaceHello = 260, kEnd = 261, kStart = 262;

Tokenizer make(const TokenizerFixture& fixture, std::string_view config = "") {
  return Tokenizer::parse(fixture.text(), config, "t.json");
}

TEST(Tokenizer, MergesByRankInsidePieces) {
  const Tokenizer t = make(TokenizerFixture());
  EXPECT_THAT(t.encode("hello hello"), ElementsAre(kHello, kSpaceHello));
  EXPECT_THAT(t.encode("hell"), ElementsAre(258));
  EXPECT_THAT(t.encode("helo"), ElementsAre(kHe, 'l', 'o'));
  EXPECT_THAT(t.encode("lll"), ElementsAre(kLl, 'l'));
  EXPECT_THAT(t.encode("l1l"), ElementsAre('l', '1', 'l'));
  EXPECT_THAT(t.encode(""), ElementsAre());
  EXPECT_THAT(t.encode(std::string_view("a\0b", 3)), ElementsAre('a', 0, 'b'));
  EXPECT_EQ(t.decode(t.encode("hello, wörld \n")), "hello, wörld \n");
  EXPECT_EQ(t.vocab_size(), 263);
  EXPECT_EQ(t.id_of("\xC4\xA0hello"), kSpaceHello);
  EXPECT_EQ(t.id_of("nothing"), std::nullopt);
}

TEST(Tokenizer, AddedTokensAreCutOutOfTheRawText) {
  const Tokenizer t = make(TokenizerFixture());
  EXPECT_THAT(t.encode("hello<|end|>l<|start|><|end"), ElementsAre(kHello, kEnd, 'l', kStart, '<', '|', 'e', 'n', 'd'));
  const Ids plain = t.encode("<|end|>", {.parse_special = false});
  EXPECT_THAT(plain, ElementsAre('<', '|', 'e', 'n', 'd', '|', '>'));
  EXPECT_EQ(t.decode(Ids{kHello, kEnd}), "hello<|end|>");
  EXPECT_EQ(t.decode(Ids{kHello, kEnd}, true), "hello");
}

TEST(Tokenizer, NormalizesBetweenAddedTokensOnly) {
  TokenizerFixture fixture;
  fixture.file["normalizer"] = {{"type", "NFC"}};
  const Tokenizer t = make(fixture);
  EXPECT_THAT(t.encode("e\u0301"), ElementsAre(0xC3, 0xA9));
  // U+226F is ">" with U+0338.
  EXPECT_THAT(t.encode("<|end|>\u0338"), ElementsAre(kEnd, 0xCC, 0xB8));
  EXPECT_THAT(t.encode(">\u0338"), ElementsAre(0xE2, 0x89, 0xAF));
}

TEST(Tokenizer, HonoursTheFlagsOfAddedTokens) {
  TokenizerFixture fixture;
  fixture.add_token("[L]", {{"lstrip", true}});                             // 263
  fixture.add_token("[R]", {{"rstrip", true}});                             // 264
  fixture.add_token("one", {{"single_word", true}});                        // 265
  fixture.add_token("\u212A", {{"normalized", true}, {"special", false}});  // 266: Kelvin sign, NFC "K"
  fixture.add_token("<|end|>!", Json::object());                            // 267
  fixture.file["normalizer"] = {{"type", "NFC"}};
  const Tokenizer t = make(fixture);
  EXPECT_THAT(t.encode("a \u3000[L] b"), ElementsAre('a', 263, ' ', 'b'));
  EXPECT_THAT(t.encode("a [R] \n b"), ElementsAre('a', ' ', 264, 'b'));
  EXPECT_THAT(t.encode("one one, xone"), ElementsAre(265, ' ', 265, ',', ' ', 'x', 'o', 'n', 'e'));
  EXPECT_THAT(t.encode("aK"), ElementsAre('a', 266));
  EXPECT_THAT(t.encode("<|end|>!"), ElementsAre(267)) << "the longest wins";
  EXPECT_EQ(t.decode(Ids{266, 265}, true), "K") << "only special tokens are skipped";
}

TEST(Tokenizer, RepairsMalformedText) {
  const Tokenizer t = make(TokenizerFixture());
  EXPECT_EQ(t.encode("a\xFF\xE2\x82z"), t.encode("a\uFFFD\uFFFDz"));
  EXPECT_EQ(t.encode("\xED\xA0\x80"), t.encode("\uFFFD\uFFFD\uFFFD"));
}

TEST(Tokenizer, DecodesWhatIsNoCharacter) {
  const Tokenizer t = make(TokenizerFixture());
  EXPECT_EQ(t.decode(Ids{'a', 0xE2, 0x82, 'b', 0xFF}), "a\uFFFDb\uFFFD");
  EXPECT_EQ(t.decode(Ids{'a', -1, 1 << 30, INT32_MIN, 'b'}), "ab");
}

TEST(Tokenizer, StreamsWholeCharacters) {
  const Tokenizer t = make(TokenizerFixture());
  StreamDecoder stream(t);
  EXPECT_EQ(stream.feed(0xF0), "");
  EXPECT_EQ(stream.feed(0x9F), "");
  EXPECT_EQ(stream.feed(0x99), "");
  EXPECT_EQ(stream.feed(0x82), "🙂");
  EXPECT_EQ(stream.feed(0xE2), "");
  EXPECT_EQ(stream.feed('x'), "\uFFFDx");
  EXPECT_EQ(stream.feed(0xC3), "");
  EXPECT_EQ(stream.flush(), "\uFFFD");
  EXPECT_EQ(stream.flush(), "");

  const CounterRng rng(3, 0);
  uint64_t draw = 0;
  for (int round = 0; round < 200; ++round) {
    Ids ids;
    for (int i = 0; i < 12; ++i) ids.push_back(static_cast<int32_t>(rng.below(draw++, 263)));
    StreamDecoder random(t);
    std::string text;
    for (const int32_t id : ids) {
      text += random.feed(id);
      ASSERT_TRUE(is_valid_utf8(text));
    }
    ASSERT_EQ(text + random.flush(), t.decode(ids));
  }
}

TEST(Tokenizer, AddsWhatThePostProcessorAsksForOnRequest) {
  TokenizerFixture fixture;
  const Json special = {{"SpecialToken", {{"id", "<|start|>"}, {"type_id", 0}}}};
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json ids = {{"id", "<|start|>"}, {"ids", Json::array({kStart})}};
  const Json wrap = {{"type", "TemplateProcessing"},
                     {"single", Json::array({special, text})},
                     {"special_tokens", {{"<|start|>", ids}}}};
  fixture.file["post_processor"] = {{"type", "Sequence"}, {"processors", Json::array({{{"type", "ByteLevel"}}, wrap})}};
  const Tokenizer t = make(fixture);
  EXPECT_THAT(t.encode("l"), ElementsAre('l'));
  EXPECT_THAT(t.encode("l", {.add_special_tokens = true}), ElementsAre(kStart, 'l'));
  EXPECT_THAT(t.special_prefix(), ElementsAre(kStart));
  EXPECT_THAT(t.special_suffix(), ElementsAre());
}

TEST(Tokenizer, BytesWithoutATokenVanish) {
  TokenizerFixture fixture;
  Json& vocab = fixture.file["model"]["vocab"];
  vocab.erase(bytes_to_token("\x04"));
  Tokenizer t = make(fixture);
  EXPECT_THAT(t.encode("l\x04l"), ElementsAre('l', 'l')) << "split into pieces by the pattern";
  fixture.set_split("never");
  t = make(fixture);
  EXPECT_THAT(t.encode("l\x04l"), ElementsAre(kLl)) << "neighbours in one piece";
  EXPECT_THAT(t.encode("\x04"), ElementsAre());
  fixture.file["model"]["unk_token"] = "?";
  EXPECT_THAT(make(fixture).encode("l\x04\x04l"), ElementsAre('l', '?', '?', 'l'));
  fixture.file["model"]["fuse_unk"] = true;
  EXPECT_THAT(make(fixture).encode("l\x04\x04l"), ElementsAre('l', '?', 'l'));
}

TEST(Tokenizer, LooksWholePiecesUpWhereMergesAreIgnored) {
  TokenizerFixture fixture;
  fixture.file["model"]["vocab"]["lxl"] = 300;  // no merge makes it
  EXPECT_THAT(make(fixture).encode("lxl"), ElementsAre('l', 'x', 'l'));
  fixture.file["model"]["ignore_merges"] = true;
  EXPECT_THAT(make(fixture).encode("lxl lxl"), ElementsAre(300, ' ', 'l', 'x', 'l'));
  EXPECT_EQ(make(fixture).vocab_size(), 301);
}

TEST(Tokenizer, FingerprintFollowsIdsNotForm) {
  TokenizerFixture fixture;
  const std::string first = make(fixture).fingerprint();
  Json strings = Json::array({"#version: 0.2"});
  for (const Json& pair : fixture.file["model"]["merges"]) {
    strings.push_back(pair[0].get<std::string>() + " " + pair[1].get<std::string>());
  }
  std::swap(fixture.file["model"]["merges"], strings);
  EXPECT_EQ(make(fixture).fingerprint(), first);
  EXPECT_THAT(make(fixture).encode("hello"), ElementsAre(kHello));
  fixture.file["normalizer"] = {{"type", "NFC"}};
  EXPECT_NE(make(fixture).fingerprint(), first);
  fixture.file["normalizer"] = nullptr;
  fixture.set_split("l");
  EXPECT_NE(make(fixture).fingerprint(), first);
}

TEST(Tokenizer, ReadsNamedTokensOfTheConfig) {
  const TokenizerFixture fixture;
  const Tokenizer t =
      make(fixture, R"({"bos_token": null, "eos_token": {"content": "<|end|>"}, "pad_token": "<|start|>",
                                        "add_bos_token": false, "image_token": "<img>"})");
  EXPECT_EQ(t.eos_id(), kEnd);
  EXPECT_EQ(t.pad_id(), kStart);
  EXPECT_EQ(t.bos_id(), std::nullopt);
  EXPECT_THAT(t.stop_ids(), ElementsAre(kEnd));
  EXPECT_THAT(t.special_tokens(), ElementsAre(std::pair("eos_token", "<|end|>"), std::pair("image_token", "<img>"),
                                              std::pair("pad_token", "<|start|>")));
  EXPECT_THAT([&] { make(fixture, R"({"eos_token": "<none>"})"); }, ThrowsMessage<InputError>(HasSubstr("<none>")));
  EXPECT_THAT([&] { make(fixture, R"({"added_tokens_decoder": {"7": {"content": "<|end|>"}}})"); },
              ThrowsMessage<InputError>(HasSubstr("261")));
}

TEST(Tokenizer, ManyThreadsGetTheSame) {
  const Tokenizer t = make(TokenizerFixture());
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "hello" + std::to_string(i * i) + (i % 3 == 0 ? " ll" : "\n");
  const Ids expected = t.encode(text);
  std::vector<std::thread> threads;
  std::array<bool, 4> equal{};
  for (size_t i = 0; i < equal.size(); ++i) threads.emplace_back([&, i] { equal[i] = t.encode(text) == expected; });
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(equal, testing::Each(true));
}

}  // namespace
}  // namespace lazytrain::text
