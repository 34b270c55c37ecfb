// Files that are broken, hostile or beyond what we support: a clear error of the right kind, never a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "text/tokenizer.h"
#include "text/tokenizer_fixture.h"

namespace lazytrain::text {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// The fixture with the value at a JSON pointer replaced.
std::string with(const char* pointer, const Json& value) {
  TokenizerFixture fixture;
  fixture.file[Json::json_pointer(pointer)] = value;
  return fixture.text();
}

void parse(const std::string& text) { Tokenizer::parse(text, "", "t.json"); }

template <typename E>
void expect_error(const std::string& text, const std::string& part) {
  EXPECT_THAT([&] { parse(text); }, ThrowsMessage<E>(AllOf(HasSubstr("t.json"), HasSubstr(part))))
      << text.substr(0, 200);
}

TEST(HostileTokenizer, WrongTypes) {
  for (const char* text : {"", "[]", "3", "null", "{", "{\"model\": 1}", "\xFF"}) {
    EXPECT_THROW(parse(text), Error) << text;
  }
  expect_error<InputError>(with("/model", Json::array()), "model");
  expect_error<InputError>(with("/model/vocab", Json::array()), "vocab");
  expect_error<InputError>(with("/model/vocab", Json::object()), "empty");
  expect_error<InputError>(with("/model/merges", Json::object()), "merges");
  expect_error<InputError>(with("/model/merges", nullptr), "merges");
  expect_error<InputError>(with("/added_tokens", "x"), "added_tokens");
  expect_error<InputError>(with("/added_tokens/0", 5), "added_tokens[0]");
  expect_error<InputError>(with("/added_tokens/0/special", "yes"), "special");
  expect_error<InputError>(with("/added_tokens/0/content", ""), "content");
  expect_error<InputError>(with("/added_tokens/0/content", std::string(5000, 'x')), "5000");
  expect_error<InputError>(with("/normalizer", 1), "normalizer");
  expect_error<InputError>(with("/normalizer", {{"type", "Sequence"}}), "normalizers");
  expect_error<InputError>(with("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", 1}}), "pretokenizers");
  expect_error<InputError>(with("/pre_tokenizer/pretokenizers/0/behavior", "Sideways"), "Sideways");
  expect_error<InputError>(with("/pre_tokenizer/pretokenizers/0/pattern", Json::object()), "Regex");
  expect_error<InputError>(with("/post_processor", {{"type", "TemplateProcessing"}}), "single");
}

TEST(HostileTokenizer, IdsAndMerges) {
  for (const Json& id : {Json(-1), Json(10'000'000), Json(UINT64_MAX), Json(INT64_MIN), Json(1.5), Json("1"), Json()}) {
    expect_error<InputError>(with("/model/vocab/A", id), "\"A\"");
  }
  expect_error<InputError>(with("/model/vocab/A", 66), "66");
  expect_error<InputError>(with("/added_tokens/0/id", 10'000'000), "id");
  expect_error<InputError>(with("/added_tokens/0/id", -1), "id");
  expect_error<InputError>(with("/added_tokens/0/id", 65), "65");
  expect_error<InputError>(with("/added_tokens/1/id", 261), "261");
  expect_error<InputError>(with("/added_tokens/1/content", "<|end|>"), "<|end|>");
  expect_error<InputError>(with("/added_tokens/0/content", "A"), "\"A\"");
  for (const Json& merge : {Json("ab"), Json("a b c"), Json(" b"), Json(""), Json(3), Json::array({"a"}),
                            Json::array({"a", "b", "c"}), Json::array({"a", 1}), Json::array({"", "b"})}) {
    expect_error<InputError>(with("/model/merges/2", merge), "merges[2]");
  }
  expect_error<InputError>(with("/model/merges/2", "a b"), "no \"ab\"");
  expect_error<InputError>(with("/model/merges/2", "hell zz"), "no \"zz\"");
}

TEST(HostileTokenizer, UnsupportedIsNamed) {
  expect_error<UsageError>(with("/model/type", "Unigram"), "Unigram");
  expect_error<UsageError>(with("/model/dropout", 0.1), "dropout");
  expect_error<UsageError>(with("/model/end_of_word_suffix", "</w>"), "end_of_word_suffix");
  expect_error<UsageError>(with("/model/continuing_subword_prefix", "##"), "continuing_subword_prefix");
  expect_error<UsageError>(with("/normalizer", {{"type", "Lowercase"}}), "Lowercase");
  expect_error<UsageError>(with("/pre_tokenizer", nullptr), "ByteLevel");
  expect_error<UsageError>(with("/pre_tokenizer", {{"type", "Metaspace"}}), "Metaspace");
  expect_error<UsageError>(with("/pre_tokenizer/pretokenizers/2", {{"type", "Digits"}}), "Digits after ByteLevel");
  expect_error<UsageError>(with("/post_processor", {{"type", "BertProcessing"}}), "BertProcessing");
  expect_error<UsageError>(with("/decoder", nullptr), "decoder");
  expect_error<UsageError>(with("/decoder", {{"type", "WordPiece"}}), "WordPiece");
  expect_error<UsageError>(TokenizerFixture("(unclosed").text(), "(unclosed");
  expect_error<UsageError>(TokenizerFixture("(?<=a+)b").text(), "(?<=a+)b");
}

TEST(HostileTokenizer, DeepNesting) {
  for (const char* key : {"/normalizer", "/pre_tokenizer", "/post_processor", "/decoder"}) {
    const char* list = key[1] == 'n'   ? "normalizers"
                       : key[2] == 'r' ? "pretokenizers"
                       : key[1] == 'p' ? "processors"
                                       : "decoders";
    Json nested = {{"type", "ByteLevel"}};
    for (int i = 0; i < 90; ++i) nested = {{"type", "Sequence"}, {list, Json::array({nested})}};
    EXPECT_THROW(parse(with(key, nested)), Error) << key;
  }
  EXPECT_THROW(parse(std::string(100'000, '[')), InputError);
}

TEST(HostileTokenizer, CostlyPatternsEndInAnError) {
  const Tokenizer t = Tokenizer::parse(TokenizerFixture("(?:x+x+)+[yz]").text(), "", "t.json");
  EXPECT_THAT([&] { t.encode(std::string(2000, 'x')); }, ThrowsMessage<InputError>(HasSubstr("(?:x+x+)+[yz]")));
  // More state than the JIT's stack holds, but within bounds.
  const Tokenizer deep = Tokenizer::parse(TokenizerFixture("(?:(a)|b)+").text(), "", "t.json");
  EXPECT_EQ(deep.encode(std::string(100'000, 'a')).size(), 100'000u);
}

TEST(HostileTokenizer, Folders) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "lazytrain_tokenizer_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  EXPECT_THAT([&] { Tokenizer::load(folder); }, ThrowsMessage<UsageError>(HasSubstr("tokenizer.json")));
  write_file(folder / "tokenizer.json", TokenizerFixture().text());
  EXPECT_EQ(Tokenizer::load(folder).eos_id(), std::nullopt);
  write_file(folder / "special_tokens_map.json", R"({"eos_token": "<|end|>", "bos_token": "<|start|>"})");
  write_file(folder / "config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ(Tokenizer::load(folder).bos_id(), 262);
  EXPECT_THAT(Tokenizer::load(folder).stop_ids(), testing::ElementsAre(261, 7));
  write_file(folder / "tokenizer_config.json", R"({"bos_token": null})");
  write_file(folder / "generation_config.json", R"({"eos_token_id": [8, 261]})");
  EXPECT_EQ(Tokenizer::load(folder).bos_id(), std::nullopt) << "tokenizer_config.json has the last word";
  EXPECT_THAT(Tokenizer::load(folder).stop_ids(), testing::ElementsAre(261, 8));
  write_file(folder / "generation_config.json", R"({"eos_token_id": ["x"]})");
  EXPECT_THROW(Tokenizer::load(folder), InputError);
  write_file(folder / "generation_config.json", "{}");
  write_file(folder / "tokenizer_config.json", "");
  EXPECT_THROW(Tokenizer::load(folder), InputError);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lazytrain::text
