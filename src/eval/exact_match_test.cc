#include "eval/exact_match.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"

namespace lazytrain::eval {
namespace {

constexpr const char* kNone = "";

struct Vector {
  const char* text;
  const char* value;
};

void expect_behind_marker(const std::vector<Vector>& vectors) {
  for (const auto& [text, value] : vectors) {
    EXPECT_EQ(final_number("so 99.\nThe answer is: " + std::string(text)).value_or(kNone), value) << text;
    EXPECT_EQ(final_number("so 99.\n#### " + std::string(text)).value_or(kNone), value) << text;
  }
}

// Inputs of the reference scorer's vectors on which the rules agree.
TEST(ExactMatch, NumbersThatTheReferenceScorerReadsAlike) {
  expect_behind_marker({{"72", "72"},
                        {"1,234", "1234"},
                        {"-5", "-5"},
                        {"- 5", "5"},
                        {"7/0", "7"},
                        {"5.", "5"},
                        {"x = 5", "5"},
                        {"18 dollars and 3 cents", "18"},
                        {"1,2", "12"},
                        {"12 3", "12"},
                        {"50%", "50"},
                        {"+7", "7"},
                        {"10^3", "10"},
                        {"1e5", "1"},
                        {"no number", kNone},
                        {"", kNone}});
}

// Where it rounds, or reads one separator only, the value stays what is written.
TEST(ExactMatch, NumbersAreExact) {
  expect_behind_marker({{"1,234,567", "1234567"},
                        {"$18.50", "18.5"},
                        {"12.5", "12.5"},
                        {"3/4", "0.75"},
                        {"-1/2", "-0.5"},
                        {".5", "0.5"},
                        {"-.50", "-0.5"},
                        {"1,000.5", "1000.5"},
                        {"1,234.50", "1234.5"},
                        {"6/4", "1.5"},
                        {"1/3", "1/3"},
                        {"-2/6", "-1/3"},
                        {"0/7", "0"},
                        {"−5", "-5"},
                        {"1/1024", "0.0009765625"}});
}

TEST(ExactMatch, DressOfNumbersMakesNoDifference) {
  expect_behind_marker({{"12.", "12"},
                        {"$18", "18"},
                        {"-$18", "-18"},
                        {"$-18", "-18"},
                        {"\\$1,000", "1000"},
                        {"€5.00", "5"},
                        {"£ 7", "7"},
                        {"18.00", "18"},
                        {"007", "7"},
                        {"-0.0", "0"},
                        {"0.250", "0.25"},
                        {"50\\%", "50"},
                        {"**18**", "18"},
                        {"(-3)", "-3"},
                        {"18 apples.", "18"},
                        {"100", "100"}});
}

TEST(ExactMatch, TheLastMarkerCounts) {
  EXPECT_EQ(final_number("#### 3\nThe answer is: 4"), "4");
  EXPECT_EQ(final_number("The answer is: 4\n#### 3 and then 5"), "3");
  EXPECT_EQ(final_number("The answer is: 4. The answer is: 6"), "6");
  EXPECT_EQ(final_number("The answer is:5"), "5");
  EXPECT_EQ(final_number("The answer is:\n\n 5\n6"), "5");
  EXPECT_EQ(final_number("12 The answer is:"), std::nullopt);  // no way back to earlier numbers
  EXPECT_EQ(final_number("The answer is: 4\nThe answer is: many"), std::nullopt);
}

TEST(ExactMatch, WithoutMarkerTheLastNumber) {
  EXPECT_EQ(final_number("3 apples and 4 pears make 7."), "7");
  EXPECT_EQ(final_number("The answer is 5"), "5");
  EXPECT_EQ(final_number("the answer is: $1,250.00!"), "1250");
  EXPECT_EQ(final_number("10-5"), "5");  // an operator, no sign
  EXPECT_EQ(final_number("x-5"), "5");
  EXPECT_EQ(final_number("(2)-5"), "5");
  EXPECT_EQ(final_number("10 = -5"), "-5");
  EXPECT_EQ(final_number("so \\boxed{42}."), "42");
  EXPECT_EQ(final_number("none at all"), std::nullopt);
  EXPECT_EQ(final_number(""), std::nullopt);
}

TEST(ExactMatch, ComparesByValue) {
  EXPECT_TRUE(match_answer("The answer is: $1,234.00.", "so\n#### 1234").correct);
  EXPECT_TRUE(match_answer("it is 0.5", "The answer is: 1/2").correct);
  EXPECT_FALSE(match_answer("The answer is: 18.5", "#### 18").correct);
  EXPECT_FALSE(match_answer("The answer is: -18", "#### 18").correct);
  EXPECT_FALSE(match_answer("", "#### 18").correct);
  EXPECT_FALSE(match_answer("The answer is: 12345678901234567891", "#### 12345678901234567890").correct);
  const Match match = match_answer("that makes 7 or 8", "#### 1,008");
  EXPECT_EQ(match.gold, "1008");
  EXPECT_EQ(match.predicted, "8");
}

TEST(ExactMatch, AReferenceThatIsNoNumberIsComparedAsText) {
  EXPECT_TRUE(match_answer("The answer is: $x^2 + 1$.", "The answer is: x^2+1").correct);
  EXPECT_FALSE(match_answer("The answer is: x^2 + 2", "The answer is: x^2+1").correct);
  EXPECT_FALSE(match_answer("The answer is: \\frac{1}{3}", "The answer is: \\frac{1}{2}").correct);
  EXPECT_TRUE(match_answer(" yes\n", "yes").correct);
  EXPECT_FALSE(match_answer("no", "yes").correct);
  EXPECT_FALSE(match_answer("", "").correct);
  EXPECT_FALSE(match_answer("The answer is: 2x", "The answer is: 2y").correct);
}

TEST(ExactMatch, AnyBytesAreLegal) {
  for (const char* text : {"\xff\xfe####\xff", "####-", "$", ".", "-.", "1,", ",1", "1/", "/5", "1//2", "\\", "−",
                           "999999999999999999999/999999999999999999999999", "####", "#### $"}) {
    match_answer(text, text);
    match_answer(text, "#### 5");
  }
  EXPECT_EQ(final_number(std::string(100000, '9')), std::string(100000, '9'));
}

TEST(ExactMatch, PerfectPredictionsOfGsm8kAreAllCorrect) {
  const char* shared = std::getenv("LAZYTRAIN_SHARED");
  const std::filesystem::path folder = shared != nullptr ? shared : LAZYTRAIN_SOURCE_DIR "/../shared";
  const auto path = folder / "data" / "gsm8k" / "gsm8k_test_full_1319.jsonl";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there; LAZYTRAIN_SHARED names the data folder";
  std::ifstream file(path);
  int64_t total = 0, correct = 0, shifted = 0;
  for (std::string line; std::getline(file, line); ++total) {
    const auto answer = parse_json(line, path.string()).at("answer").get<std::string>();
    const std::string number = answer.substr(answer.rfind("#### ") + 5);
    correct += match_answer("So it is.\nThe answer is: " + number, answer).correct ? 1 : 0;
    shifted += match_answer("So it is.\nThe answer is: 1" + number, answer).correct ? 1 : 0;
  }
  EXPECT_EQ(total, 1319);
  EXPECT_EQ(correct, 1319);
  EXPECT_EQ(shifted, 0);
}

}  // namespace
}  // namespace lazytrain::eval
