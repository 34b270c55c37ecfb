#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace lazytrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    parse_json(text, "f.json");
    return "accepted";
  } catch (const InputError& error) {
    return error.what();
  }
}

template <typename Call>
std::string message(const Call& call) {
  try {
    call();
    return "accepted";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(ParseJson, KeepsOrderAndValues) {
  const Json json = parse_json(R"({"z":[1,-2,0.5,true,null,"é"],"a":{"b":{}},"m":18446744073709551615})", "f");
  EXPECT_EQ(json.dump(), R"({"z":[1,-2,0.5,true,null,"é"],"a":{"b":{}},"m":18446744073709551615})");
  EXPECT_EQ(json["z"][1].get<int>(), -2);
  EXPECT_EQ(parse_json(" 7 ", "f").get<int>(), 7);
}

TEST(ParseJson, RefusesDuplicateKeysInOneObject) {
  EXPECT_THAT(refusal(R"({"a":1,"b":2,"a":3})"), AllOf(HasSubstr("f.json"), HasSubstr("\"a\" stands twice")));
  EXPECT_THAT(refusal(R"({"x":[{"a":1,"\u0061":3}]})"), HasSubstr("\"a\" stands twice"));
  EXPECT_EQ(refusal(R"({"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]})"), "accepted");
}

TEST(ParseJson, BoundsTheDepth) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(refusal(nested(256)), "accepted");
  EXPECT_THAT(refusal(nested(257)), HasSubstr("256 levels"));
  EXPECT_THAT(refusal(std::string(10'000'000, '[')), HasSubstr("256 levels"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  EXPECT_THAT(refusal(objects), HasSubstr("256 levels"));
}

TEST(ParseJson, NamesTheLineAndColumn) {
  EXPECT_THAT(refusal("{\n  \"a\": 1,\n  \"b\": ?\n}"), HasSubstr("f.json: line 3, column 8:"));
  EXPECT_THAT(refusal("?"), HasSubstr("line 1, column 1:"));
}

TEST(ParseJson, RefusesWhatIsNotJson) {
  for (const std::string text : {"", "{", "[1,]", "{\"a\":1,}", "[1] 2", "{'a':1}", "[01]", "[1e999]", "[NaN]",
                                 "// x\n1", "\"\xff\"", "\"\xed\xa0\x80\"", "\"\\ud800\"", "\"a\nb\""}) {
    EXPECT_THAT(refusal(text), HasSubstr("not valid JSON")) << text;
  }
}

TEST(ParseJson, RefusesTextBehindANulByte) {
  EXPECT_THAT(refusal(std::string("{}\0{\"hidden\":1}", 15)), AllOf(HasSubstr("column 3"), HasSubstr("NUL")));
  EXPECT_THAT(refusal(std::string("\0", 1)), HasSubstr("NUL"));
  EXPECT_EQ(refusal(R"(["\u0000"])"), "accepted");
}

TEST(ParseJson, CopesWithManyKeys) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += (i ? ",\"" : "\"") + std::to_string(i) + "\":1";
  EXPECT_EQ(parse_json(text + "}", "f").size(), 200'000u);
}

TEST(JsonObject, GivesTypedValues) {
  const Json json =
      parse_json(R"({"i":7,"f":2.5,"b":true,"s":"x","n":null,"o":{"p":1},"big":18446744073709551615})", "f");
  const JsonObject object(json, "f.json");
  EXPECT_EQ(object.integer("i", 0, 7), 7);
  EXPECT_EQ(object.integer_or("absent", 3, 0, 5), 3);
  EXPECT_EQ(object.integer_or("n", 3, 0, 5), 3);
  EXPECT_EQ(object.number("f"), 2.5);
  EXPECT_EQ(object.number("i"), 7);
  EXPECT_EQ(object.number_or("n", 1.5), 1.5);
  EXPECT_TRUE(object.boolean_or("b", false));
  EXPECT_TRUE(object.boolean_or("absent", true));
  EXPECT_EQ(object.string("s"), "x");
  EXPECT_EQ(object.string_or("absent", "y"), "y");
  EXPECT_EQ(object.object("o").integer("p", 1, 1), 1);
  EXPECT_TRUE(object.has("i"));
  EXPECT_FALSE(object.has("n"));
}

TEST(JsonObject, NamesFileKeyFoundAndExpected) {
  const Json json = parse_json(R"({"i":7,"f":2.5,"s":"x","o":{"p":[1]},"big":18446744073709551615})", "f");
  const JsonObject object(json, "f.json");
  EXPECT_EQ(message([&] { object.integer("i", 8, 9); }), "f.json: \"i\" is 7, expected a whole number from 8 to 9");
  EXPECT_EQ(message([&] { object.integer("absent", 8, 9); }), "f.json: the key \"absent\" is missing");
  EXPECT_THAT(message([&] { object.integer("f", 0, 9); }), HasSubstr("\"f\" is 2.5"));
  EXPECT_THAT(message([&] { object.integer("big", 0, INT64_MAX); }), HasSubstr("18446744073709551615"));
  EXPECT_THAT(message([&] { object.number("s"); }), HasSubstr("expected a finite number"));
  EXPECT_THAT(message([&] { object.boolean_or("i", true); }), HasSubstr("expected true or false"));
  EXPECT_THAT(message([&] { object.string("i"); }), HasSubstr("expected a string"));
  EXPECT_THAT(message([&] { object.object("i"); }), HasSubstr("expected an object"));
  EXPECT_THAT(message([&] { object.object("o").string("p"); }), HasSubstr("f.json: o: \"p\" is [1]"));
  EXPECT_THAT(message([&] { JsonObject(json["i"], "f.json"); }), HasSubstr("expected a JSON object, found number"));
}

TEST(Shown, KeepsMessagesShortAndHarmless) {
  EXPECT_EQ(shown("plain é"), "plain é");
  EXPECT_EQ(shown("\x1b[2J\n\x7f"), "\\x1b[2J\\x0a\\x7f");
  EXPECT_EQ(shown("abcdef", 3), "abc...");
  EXPECT_EQ(shown("aéé", 2), "a...");  // not half a character
  EXPECT_EQ(shown("aéé", 3), "aé...");
  EXPECT_EQ(shown(""), "");
}

TEST(Nearest, FindsASlipAndNothingFar) {
  const std::vector<std::string> keys = {"optimizer.lr", "optimizer.betas", "data.train", "seed", "seq"};
  EXPECT_EQ(nearest("optimiser.lr", keys), "optimizer.lr");
  EXPECT_EQ(nearest("data.trian", keys), "data.train");
  EXPECT_EQ(nearest("sede", keys), "seed");
  EXPECT_EQ(nearest("completely_else", keys), "");
  EXPECT_EQ(nearest("x", {}), "");
}

}  // namespace
}  // namespace lazytrain
