#include "text/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/error.h"
#include "base/rng.h"
#include "text/onig_pattern.h"
#include "text/tokenizer_fixture.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace lazytrain::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Pieces = std::vector<std::string>;

Pieces split(const Json& config, std::string_view text) {
  Regex::Workspace workspace;
  Pieces pieces;
  Pretokenizer::from_json(config, "t").split(text, workspace, [&](std::string_view piece) {
    pieces.emplace_back(piece);
  });
  return pieces;
}

Pieces split_by(std::string_view pattern, std::string_view text, const char* behavior = "Isolated",
                bool invert = false) {
  TokenizerFixture fixture;
  fixture.set_split(pattern, behavior, invert);
  return split(fixture.file["pre_tokenizer"], text);
}

TEST(Pretokenizer, Behaviors) {
  const char* text = "--a-b--";
  EXPECT_THAT(split_by("-", text), ElementsAre("-", "-", "a", "-", "b", "-", "-"));
  EXPECT_THAT(split_by("-", text, "Removed"), ElementsAre("a", "b"));
  EXPECT_THAT(split_by("-", text, "Removed", true), ElementsAre("-", "-", "-", "-", "-"));
  EXPECT_THAT(split_by("-", text, "Contiguous"), ElementsAre("--", "a", "-", "b", "--"));
  EXPECT_THAT(split_by("-", text, "MergedWithPrevious"), ElementsAre("-", "-", "a-", "b-", "-"));
  EXPECT_THAT(split_by("-", text, "MergedWithNext"), ElementsAre("-", "-a", "-b", "-", "-"));
  EXPECT_THAT(split_by("x*", "axb"), ElementsAre("a", "x", "b")) << "empty matches cut";
}

TEST(Pretokenizer, ByteLevelPrefixesEveryPiece) {
  EXPECT_THAT(split(TokenizerFixture::byte_level(true, true), "a b"), ElementsAre(" a", " b"));
  const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
  const Json sequence = {{"type", "Sequence"},
                         {"pretokenizers", Json::array({digits, TokenizerFixture::byte_level(true, true)})}};
  EXPECT_THAT(split(sequence, "a1 b"), ElementsAre(" a", " 1", " b"));
  EXPECT_THAT(split(sequence, ""), ElementsAre());
}

TEST(Pretokenizer, DigitsAloneOrInRuns) {
  Json digits = {{"type", "Digits"}, {"individual_digits", true}};
  Json sequence = {{"type", "Sequence"}, {"pretokenizers", Json::array({digits, TokenizerFixture::byte_level()})}};
  EXPECT_THAT(split(sequence, "a12½ b"), ElementsAre("a", "1", "2", "½", " b"));
  sequence["pretokenizers"][0]["individual_digits"] = false;
  EXPECT_THAT(split(sequence, "a12½ b"), ElementsAre("a", "12½", " b"));
}

TEST(Pretokenizer, MeansWhatOnigurumaMeans) {
  // U+180E is white space to PCRE2's \s, not to Unicode.
  EXPECT_THAT(split_by(R"(\s+)", "a\u180E\u3000\u0085b"), ElementsAre("a\u180E", "\u3000\u0085", "b"));
  EXPECT_THAT(split_by(R"([^\s]+)", "a \u180Eb"), ElementsAre("a", " ", "\u180Eb"));
  EXPECT_THAT(split_by(R"(\w+)", "ab\u0301_\u203F-c"), ElementsAre("ab\u0301_\u203F", "-", "c"));
  EXPECT_THAT(split_by(R"((?m:a.b))", "xa\nb"), ElementsAre("x", "a\nb"));
  EXPECT_THAT(split_by(R"(a.b)", "a\nb"), ElementsAre("a\nb"));
  EXPECT_THAT(split_by(R"(^b)", "b\nb"), ElementsAre("b", "\n", "b"));
  EXPECT_THAT(split_by(R"(\h+)", "xfFx"), ElementsAre("x", "fF", "x"));
  EXPECT_THAT(split_by(R"(a{,2}b)", "aaab"), ElementsAre("a", "aab"));
  EXPECT_THAT(split_by(R"({a)", "b{a"), ElementsAre("b", "{a"));
  EXPECT_THAT(split_by(R"(\p{Han}+)", "漢字\u3002a"), ElementsAre("漢字", "\u3002a"))
      << "the script, not its extensions";
  EXPECT_THAT(split_by(R"((?i:'s))", "a'\u017Fb"), ElementsAre("a", "'\u017F", "b"));
}

TEST(Pretokenizer, RefusesWhatItCannotTranslate) {
  for (const char* pattern :
       {"[[:alpha:]]", "[a&&b]", R"([\W])", "a{2}+", "a{2}?", "a(?i)b", "(?i:st)", R"((?i:\p{Lu}))", R"(\G)", R"(\1)",
        R"(\x80)", R"(\p{Nope})", "(*FAIL)", "(?~a)", R"(\R)", "[]a]", "[a", "(?i:é)"}) {
    EXPECT_THAT([&] { split_by(pattern, "x"); },
                ThrowsMessage<UsageError>(HasSubstr(std::string(pattern).substr(0, 3))))
        << pattern;
  }
}

// Random text of what the patterns tell apart, without characters younger than the regex engine's Unicode version.
std::string random_text(const CounterRng& rng, uint64_t& draw) {
  static const std::vector<std::string> kParts = {" ",
                                                  " ",
                                                  "\n",
                                                  "\r",
                                                  "\t",
                                                  "'s",
                                                  "'S",
                                                  "'ll",
                                                  "'RE",
                                                  "'ve",
                                                  "'M",
                                                  "'d",
                                                  "'T",
                                                  "'",
                                                  "\u017F",
                                                  "'\u017F",
                                                  "a",
                                                  "Bc",
                                                  "é",
                                                  "e\u0301",
                                                  "\u0301",
                                                  "1",
                                                  "23",
                                                  "456",
                                                  "½",
                                                  "Ⅷ",
                                                  "漢",
                                                  "字",
                                                  "ह",
                                                  "ि",
                                                  "\u0085",
                                                  "\u00A0",
                                                  "\u2028",
                                                  "\u3000",
                                                  "\u200B",
                                                  "!",
                                                  "?!",
                                                  "_",
                                                  "$",
                                                  "🙂",
                                                  "\u0338",
                                                  "\u0660",
                                                  "\xEF\xBF\xBD",
                                                  std::string(1, '\0')};
  std::string text;
  const uint64_t count = rng.below(draw++, 14);
  for (uint64_t i = 0; i < count; ++i) text += kParts[rng.below(draw++, kParts.size())];
  return text;
}

TEST(KnownPatterns, EqualTheRegexEngine) {
  const CounterRng rng(11, 0);
  uint64_t draw = 0;
  for (const std::string_view pattern : {kGpt2Pattern, kQwen2Pattern, kQwen35Pattern, kLlama3Pattern}) {
    ASSERT_TRUE(known_pattern(pattern));
    const std::string engine = fmt::format("(?:{})", pattern);  // the same, but not the known text
    ASSERT_FALSE(known_pattern(engine));
    const Regex regex = Regex::compile(engine, "t");
    Regex::Workspace workspace;
    for (int round = 0; round < 20'000; ++round) {
      const std::string text = random_text(rng, draw);
      for (size_t at = 0; at < text.size();) {
        const auto match = regex.find(text, at, workspace);
        ASSERT_TRUE(match && match->first == at) << text;
        ASSERT_EQ(match_known(*known_pattern(pattern), text, at), match->second) << pattern << "\n" << Json(text);
        at = match->second;
      }
    }
  }
}

TEST(KnownPatterns, ClassesEqualTheRegexEngine) {
  const Regex regex[] = {Regex::compile(R"(\A\p{L})", "t"), Regex::compile(R"(\A\p{M})", "t"),
                         Regex::compile(R"(\A\p{N})", "t"), Regex::compile(R"(\A\s)", "t")};
  const Regex assigned = Regex::compile(R"(\A\P{Cn})", "t");
  Regex::Workspace workspace;
  int count = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    if (!assigned.find(text, 0, workspace)) continue;
    ++count;
    uint8_t expected = 0;
    for (int i = 0; i < 4; ++i) expected |= regex[i].find(text, 0, workspace) ? 1 << i : 0;
    ASSERT_EQ(char_class(c) & ~kNewline, expected) << std::hex << static_cast<uint32_t>(c);
  }
  EXPECT_GT(count, 270'000);
  EXPECT_EQ(char_class(0x1D2C0), kNumber) << "Unicode 15.0";
  EXPECT_EQ(char_class(0x10D4A), kLetter) << "Unicode 16.0";
  EXPECT_FALSE(is_digit_step_number('a'));
}

}  // namespace
}  // namespace lazytrain::text
