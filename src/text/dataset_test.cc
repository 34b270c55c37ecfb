#include "text/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "text/testing.h"

namespace lazytrain::text {
namespace {

using test::Folder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Record> read(const std::string& content, const FieldMapping& mapping = {}) {
  const Folder folder;
  folder.write("d.json", content);
  Dataset data(folder.path() / "d.json", mapping);
  std::vector<Record> records;
  for (Record record; data.next(record);) records.push_back(record);
  return records;
}

std::string error_of(const std::string& content, const FieldMapping& mapping = {}) {
  try {
    read(content, mapping);
  } catch (const InputError& e) {
    return e.what();
  }
  return "no error";
}

std::vector<std::string> prompts(const std::vector<Record>& records) {
  std::vector<std::string> out;
  for (const Record& record : records)
    out.push_back(record.prompt + "|" + record.response + "|" + std::to_string(record.line));
  return out;
}

TEST(Dataset, ReadsLines) {
  EXPECT_THAT(prompts(read("{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"c\", \"completion\": \"\"}")),
              ElementsAre("a|b|1", "c||2"));
}

TEST(Dataset, TakesBomCrLfEmptyLinesAndSpace) {
  EXPECT_THAT(prompts(read("\xef\xbb\xbf\r\n  {\"query\": \"a\\r\\n\", \"response\": \"b\"} \r\n\n \t\n{\"query\": "
                           "\"c\", \"response\": \"d\"}\r\n\n")),
              ElementsAre("a\r\n|b|2", "c|d|5"));
}

TEST(Dataset, ReadsAnArray) {
  const std::vector<std::string> wanted = {"a]},{\"|b\\|2", "c|d|3"};
  EXPECT_EQ(prompts(read("\xef\xbb\xbf [\n{\"question\": \"a]},{\\\"\", \"answer\": \"b\\\\\", \"x\": [[1], {\"y\": "
                         "2}]},\n {\"question\": \"c\",\n\"answer\": \"d\"}\n]\n")),
            wanted);
  EXPECT_THAT(prompts(read("[{\"question\":\"a\",\"answer\":\"b\"}]")), ElementsAre("a|b|1"));
}

TEST(Dataset, RefusesBrokenArrays) {
  const std::string row = "{\"question\":\"a\",\"answer\":\"b\"}";
  EXPECT_THAT(error_of("[" + row), HasSubstr("not closed"));
  EXPECT_THAT(error_of("[" + row + ","), HasSubstr("not closed"));
  EXPECT_THAT(error_of("[" + row + ",]"), HasSubstr("expected a row"));
  EXPECT_THAT(error_of("[" + row + "\n" + row + "]"), AllOf(HasSubstr("line 2"), HasSubstr("expected , or ]")));
  EXPECT_THAT(error_of("[" + row + "] x"), HasSubstr("behind the end"));
  EXPECT_THAT(error_of("[" + row + ",\n{\"question\":\n\"a\" 5}]"), HasSubstr("line 3, column 5"));
  EXPECT_THAT(error_of("[}"), HasSubstr("unexpected '}'"));
  EXPECT_THAT(error_of("[]"), HasSubstr("no rows"));
  EXPECT_THAT(error_of(" \n\n"), HasSubstr("no rows"));
  EXPECT_THAT(error_of("[" + row + ", 5]"), HasSubstr("expected a JSON object, found number"));
}

TEST(Dataset, RecognisesKeysInTheirOrder) {
  EXPECT_EQ(read(R"({"response": "r", "query": "q", "completion": "c", "prompt": "p"})")[0].response, "c");
  EXPECT_EQ(read(R"({"response": "r", "query": "q", "prompt": "p"})")[0].prompt, "p");
  EXPECT_EQ(read(R"({"response": "r", "query": "q", "type": "t", "original_question": "o"})")[0].prompt, "q");
  EXPECT_EQ(read(R"({"question": "q", "answer": "a"})")[0].response, "a");
  EXPECT_EQ(read(R"({"instruction": "i", "input": "", "output": "o"})")[0].prompt, "i");
  EXPECT_EQ(read(R"({"instruction": "i", "input": null, "output": "o"})")[0].prompt, "i");
  EXPECT_EQ(read(R"({"instruction": "i", "output": "o"})")[0].response, "o");
  EXPECT_EQ(read(R"({"instruction": "i", "input": "n", "output": "o"})")[0].prompt, "i\nn");
  EXPECT_EQ(read(R"({"messages": [{"role": "user", "content": "x", "tool_calls": null}]})")[0].messages.dump(),
            R"([{"role":"user","content":"x","tool_calls":null}])");
  EXPECT_EQ(
      read(
          R"({"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "x"}, {"from": "gpt", "value": "y"}]})")
          [0]
              .messages.dump(),
      R"([{"role":"system","content":"s"},{"role":"user","content":"x"},{"role":"assistant","content":"y"}])");
}

TEST(Dataset, MapsKeys) {
  EXPECT_THAT(prompts(read(R"({"prompt": "p", "completion": "c", "in": "i", "out": "o"})", {"in", "out"})),
              ElementsAre("i|o|1"));
  EXPECT_THAT(error_of(R"({"prompt": "p", "completion": "c"})", {"in", "out"}),
              HasSubstr("expected in and out, found the keys prompt, completion"));
  EXPECT_THROW(read(R"({"prompt": "p", "completion": "c"})", {"in", ""}), UsageError);
}

TEST(Dataset, ErrorsNameLineKeysAndExpectation) {
  EXPECT_THAT(error_of("\n{\"a\": 1, \"b\": 2}"),
              AllOf(HasSubstr("d.json: line 2"), HasSubstr("found a, b"), HasSubstr("question and answer")));
  EXPECT_THAT(error_of("{\"question\": \"a\", \"answer\": \"b\"}\n{\"query\": \"a\", \"response\": \"b\"}"),
              AllOf(HasSubstr("line 2"), HasSubstr("expected question and answer"), HasSubstr("query, response")));
  EXPECT_THAT(error_of("{\"question\": \"a\", \"answer\": 5}"),
              AllOf(HasSubstr("line 1"), HasSubstr("\"answer\" is number")));
  EXPECT_THAT(error_of("{\"question\": \"a\", \"answer\": \"b\"}\n{\"question\": \"a\" \"answer\"}"),
              HasSubstr("d.json: line 2, column 2"));
  EXPECT_THAT(error_of("{\"question\": \"\xff\", \"answer\": \"b\"}"), HasSubstr("line 1"));
  EXPECT_THAT(error_of("{\"question\": \"a\", \"answer\": \"b\", \"answer\": \"c\"}"), HasSubstr("stands twice"));
  EXPECT_THAT(error_of("{\"messages\": []}"), HasSubstr("list of messages"));
  EXPECT_THAT(error_of("{\"messages\": [{\"role\": \"user\"}, {\"content\": \"x\"}]}"),
              AllOf(HasSubstr("message 1"), HasSubstr("\"role\" is missing")));
  EXPECT_THAT(error_of("{\"conversations\": [{\"from\": \"human\"}]}"), HasSubstr("\"value\" is missing"));
  EXPECT_THAT(error_of(std::string(1000, '[')), HasSubstr("not closed"));
}

TEST(Dataset, RolesAreThoseThatTemplatesKnow) {
  EXPECT_EQ(read(R"({"messages": [{"role": "human", "content": "x"}, {"role": "gpt", "content": "y"}, )"
                 R"({"role": "tool", "content": "z"}]})")[0]
                .messages.dump(),
            R"([{"role":"user","content":"x"},{"role":"assistant","content":"y"},{"role":"tool","content":"z"}])");
  EXPECT_THAT(error_of("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\n"
                       "{\"messages\": [{\"role\": \"zzz\", \"content\": \"x\"}]}"),
              AllOf(HasSubstr("line 2"), HasSubstr("\"role\" is \"zzz\""), HasSubstr("assistant")));
  EXPECT_THAT(error_of("{\"conversations\": [{\"from\": \"bot\", \"value\": \"x\"}]}"),
              AllOf(HasSubstr("line 1"), HasSubstr("\"from\" is \"bot\"")));
  EXPECT_THAT(error_of("{\"a\": 1}"), HasSubstr("conversations"));
}

TEST(Dataset, RowsAreBounded) {
  const std::string big(static_cast<size_t>(kMaxRowBytes) + 10, ' ');
  EXPECT_THAT(error_of("{\"question\": \"a\", \"answer\": \"b\"}\n{\"x\": \"" + big + "\"}"),
              AllOf(HasSubstr("line 2"), HasSubstr("more than")));
  EXPECT_THAT(error_of("[{\"x\": \"" + big + "\"}]"), HasSubstr("more than"));
}

}  // namespace
}  // namespace lazytrain::text
