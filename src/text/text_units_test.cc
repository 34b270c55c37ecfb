// The parts below the tokenizer: UTF-8, the byte-level alphabet, normal forms, BPE.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/rng.h"
#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/normalizer.h"
#include "text/tokenizer_fixture.h"
#include "text/utf8.h"

namespace lazytrain::text {
namespace {

TEST(Utf8, ReplacesEachMaximalPart) {
  // Examples of the Unicode standard, section 3.9.
  const std::string r = "\uFFFD";
  EXPECT_EQ(to_valid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(to_valid_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(to_valid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_TRUE(is_valid_utf8("aé漢🙂 padding padding"));
  EXPECT_FALSE(is_valid_utf8("padding padding\x80"));
}

TEST(Utf8, IncompleteTails) {
  EXPECT_EQ(incomplete_tail("a\xF0\x9F\x99"), 3u);
  EXPECT_EQ(incomplete_tail("a\xE2\x82"), 2u);
  EXPECT_EQ(incomplete_tail("a\xC3"), 1u);
  EXPECT_EQ(incomplete_tail("\xE0\x80"), 0u) << "nothing makes this well-formed";
  EXPECT_EQ(incomplete_tail("\xC3\xA9"), 0u);
  EXPECT_EQ(incomplete_tail(""), 0u);
}

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text = "x";
    append_utf8(text, c);
    ASSERT_TRUE(is_valid_utf8(text));
    ASSERT_EQ(code_point_at(text, 1).value, c);
    ASSERT_EQ(code_point_before(text, text.size()).value, c);
  }
}

TEST(ByteLevel, Alphabet) {
  EXPECT_EQ(byte_to_char(' '), 0x120u);
  EXPECT_EQ(byte_to_char('\n'), 0x10Au);
  EXPECT_EQ(byte_to_char('A'), U'A');
  EXPECT_EQ(byte_to_char(0xAD), 323u) << "the last of the 68";
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(char_to_byte(byte_to_char(static_cast<uint8_t>(byte))), byte);
  EXPECT_EQ(token_to_bytes("\u0120a"), " a");
  EXPECT_EQ(token_to_bytes("a b"), std::nullopt);
}

std::string normal(std::string_view text, NormalForm form) {
  std::string buffer;
  return std::string(normalize(text, form, buffer));
}

TEST(Normalizer, Forms) {
  const char* text = "e\u0301 \u212B \uFB01 \u1E0B\u0323 \u1112\u1161\u11AB";
  EXPECT_EQ(normal(text, NormalForm::kNfc), "é \u00C5 \uFB01 \u1E0D\u0307 \uD55C");
  EXPECT_EQ(normal(text, NormalForm::kNfd), "e\u0301 A\u030A \uFB01 d\u0323\u0307 \u1112\u1161\u11AB");
  EXPECT_EQ(normal(text, NormalForm::kNfkc), "é \u00C5 fi \u1E0D\u0307 \uD55C");
  EXPECT_EQ(normal(text, NormalForm::kNfkd), "e\u0301 A\u030A fi d\u0323\u0307 \u1112\u1161\u11AB");
  EXPECT_EQ(normal("\uFDFA", NormalForm::kNfkd).size(), 33u) << "the longest decomposition";
  EXPECT_EQ(normal(std::string("e\u0301\0b", 5), NormalForm::kNfc), std::string("é\0b", 4));
}

TEST(Normalizer, LongRunsOfMarks) {
  std::string text = "a", expected = "a";
  for (int i = 0; i < 100'000; ++i) text += "\u0301\u0316";  // classes 230 and 220: every pair is out of order
  for (int i = 0; i < 100'000; ++i) expected += "\u0316";
  for (int i = 0; i < 100'000; ++i) expected += "\u0301";
  EXPECT_EQ(normal(text, NormalForm::kNfd), expected);
}

// The definition: merge the leftmost adjacent pair of the least rank until none is left.
std::vector<int32_t> plain_bpe(const Json& model, std::string_view piece) {
  std::vector<std::string> symbols;
  for (const char c : piece) symbols.push_back(bytes_to_token(std::string(1, c)));
  for (;;) {
    bool merged = false;
    for (const Json& pair : model["merges"]) {
      for (size_t i = 0; i + 1 < symbols.size() && !merged; ++i) {
        if (pair[0] != symbols[i] || pair[1] != symbols[i + 1]) continue;
        symbols[i] += symbols[i + 1];
        symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(i) + 1);
        merged = true;
      }
      if (merged) break;
    }
    if (!merged) break;
  }
  std::vector<int32_t> ids;
  for (const auto& symbol : symbols) ids.push_back(model["vocab"][symbol].get<int32_t>());
  return ids;
}

TEST(Bpe, EqualsItsDefinitionOnShortAndLongPieces) {
  const CounterRng rng(5, 0);
  uint64_t draw = 0;
  TokenizerFixture fixture;
  fixture.file["model"]["merges"] = Json::array();
  std::vector<std::string> tokens = {"a", "b", "c"};
  for (int i = 0; i < 60; ++i) {
    const std::string left = tokens[rng.below(draw++, tokens.size())], right = tokens[rng.below(draw++, tokens.size())];
    bool known = left.size() + right.size() > 12;
    for (const Json& pair : fixture.file["model"]["merges"]) known = known || (pair[0] == left && pair[1] == right);
    if (known) continue;
    fixture.merge(left, right);
    tokens.push_back(left + right);
  }
  const Json& model = fixture.file["model"];
  Vocabulary vocabulary;
  const Bpe bpe = Bpe::from_json(model, "t", vocabulary);
  Bpe::Scratch scratch;
  for (int round = 0; round < 400; ++round) {
    std::string piece;
    const uint64_t length = rng.below(draw++, round % 4 == 0 ? 100 : 30);
    for (uint64_t i = 0; i < length; ++i) piece.push_back(static_cast<char>('a' + rng.below(draw++, 3)));
    std::vector<int32_t> ids;
    bpe.encode(piece, scratch, ids);
    ASSERT_EQ(ids, plain_bpe(model, piece)) << piece;
  }
}

TEST(Bpe, ALaterDuplicateOfAMergeCounts) {
  TokenizerFixture fixture;
  fixture.file["model"]["merges"] = Json::array();
  fixture.merge("a", "b");
  fixture.merge("b", "c");
  fixture.merge("a", "b");
  Vocabulary vocabulary;
  const Bpe bpe = Bpe::from_json(fixture.file["model"], "t", vocabulary);
  Bpe::Scratch scratch;
  std::vector<int32_t> ids;
  bpe.encode("abc", scratch, ids);
  EXPECT_THAT(ids, testing::ElementsAre('a', *vocabulary.find("bc")));
}

}  // namespace
}  // namespace lazytrain::text
