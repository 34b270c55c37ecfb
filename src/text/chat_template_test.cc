#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/file.h"

namespace lazytrain::text {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::vector<Json> read_cases(const fs::path& path) {
  std::ifstream file(path);
  std::vector<Json> cases;
  for (std::string line; std::getline(file, line);) cases.push_back(parse_json(line, path.string()));
  return cases;
}

std::string render(const std::string& source, const Json& variables = Json::object()) {
  return ChatTemplate::parse(source, "t", {}).render(variables);
}

template <typename E>
std::string error_of(const std::string& source, const Json& variables = Json::object()) {
  try {
    const std::string text = render(source, variables);
    ADD_FAILURE() << "no error, but: " << text.substr(0, 200);
  } catch (const E& e) {
    return e.what();
  }
  return "";
}

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / fs::path("chat_template_test_" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const { write_file(path_ / name, text); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST(ChatTemplate, RendersAsJinja) {
  const auto cases = read_cases(fs::path(LAZYTRAIN_SOURCE_DIR) / "src/text/testdata/jinja_cases.jsonl");
  ASSERT_GE(cases.size(), 150u);
  for (const Json& c : cases) {
    const auto source = c["template"].get<std::string>();
    const std::string where = c["name"].get<std::string>() + ": " + source.substr(0, 300);
    std::string text;
    std::string kind = "none";
    std::string message;
    try {
      text = render(source, c["variables"]);
    } catch (const InputError& e) {
      kind = "syntax";
      message = e.what();
    } catch (const UsageError& e) {
      kind = "unknown";
      message = e.what();
    } catch (const RunError& e) {
      kind = "runtime";
      message = e.what();
    }
    if (!c.contains("error")) {
      EXPECT_EQ(text, c["expected"].get<std::string>()) << where << "\n" << kind << " error: " << message;
      EXPECT_EQ(kind, "none") << where << "\n" << message;
    } else if (c["error"] == "raised") {
      EXPECT_EQ(message, c["message"].get<std::string>()) << where;
    } else if (c["error"] == "syntax") {  // what Jinja does not know may be unknown here by name
      EXPECT_TRUE(kind == "syntax" || kind == "unknown") << where << "\n" << kind << " " << text << message;
      EXPECT_THAT(message, HasSubstr("line ")) << where;
    } else {
      EXPECT_TRUE(kind == "runtime" || kind == "unknown") << where << "\n" << kind << " " << text << message;
    }
  }
}

TEST(ChatTemplate, RendersTheSharedConversations) {
  const char* set = std::getenv("LAZYTRAIN_SHARED");
  const fs::path shared = set != nullptr ? fs::path(set) : fs::path(LAZYTRAIN_SOURCE_DIR) / "../shared";
  const fs::path folder = shared / "data/tokenizers";
  if (!fs::exists(folder / "chat_cases.jsonl")) GTEST_SKIP() << "no " << folder / "chat_cases.jsonl";
  const auto cases = read_cases(folder / "chat_cases.jsonl");
  ASSERT_FALSE(cases.empty());
  for (Json c : cases) {
    const auto chat = ChatTemplate::load(folder / c["tokenizer"].get<std::string>());
    ASSERT_TRUE(chat.has_value());
    const Json variables = {{"messages", c["messages"]}, {"add_generation_prompt", c["add_generation_prompt"]}};
    EXPECT_EQ(chat->render(variables), c["text"].get<std::string>());
  }
}

TEST(ChatTemplate, LoadsFromAFolder) {
  const Folder folder;
  EXPECT_FALSE(ChatTemplate::load(folder.path()).has_value());
  folder.write("tokenizer_config.json",
               R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "special": true}, "pad_token": null,
                   "add_bos_token": true, "chat_template": "config {{ bos_token }}{{ eos_token }}{{ pad_token }}"})");
  EXPECT_EQ(ChatTemplate::load(folder.path())->render(Json::object()), "config <s></s>");
  folder.write("special_tokens_map.json", R"({"pad_token": "<pad>", "bos_token": "<other>"})");
  EXPECT_EQ(ChatTemplate::load(folder.path())->render(Json::object()), "config <s></s><pad>");
  folder.write("chat_template.jinja", "beside {{ bos_token }}\n");
  EXPECT_EQ(ChatTemplate::load(folder.path())->render(Json::object()), "beside <s>");
}

TEST(ChatTemplate, TakesTheDefaultOfAList) {
  const Folder folder;
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(ChatTemplate::load(folder.path())->render(Json::object()), "d");
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "t"}]})");
  EXPECT_THROW(ChatTemplate::load(folder.path()), InputError);
  folder.write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_THROW(ChatTemplate::load(folder.path()), InputError);
  folder.write("tokenizer_config.json", R"([])");
  EXPECT_THROW(ChatTemplate::load(folder.path()), InputError);
}

TEST(ChatTemplate, DropsNullsOfMessages) {
  const Json variables = parse_json(
      R"({"messages": [{"role": "user", "content": null, "tool_calls": null, "x": {"y": null}}], "z": null})", "v");
  EXPECT_EQ(render("{{ messages[0] }} {{ messages[0].content is defined }} {{ z is defined }}", variables),
            "{'role': 'user', 'x': {'y': None}} False True");
}

TEST(ChatTemplate, KnowsReasoningUnderItsNames) {
  const Json variables =
      parse_json(R"({"messages": [{"role": "a", "reasoning": "r"}, {"reasoning_content": "q"}]})", "v");
  EXPECT_EQ(render("{{ messages }}", variables),
            "[{'thinking': 'r', 'role': 'a', 'reasoning': 'r', 'reasoning_content': 'r'}, "
            "{'thinking': 'q', 'reasoning_content': 'q'}]");
}

TEST(ChatTemplate, DefinesWhatEveryTemplateMayCountOn) {
  EXPECT_EQ(render("{{ tools }} {{ documents }} {{ add_generation_prompt }} {{ bos_token is defined }}"),
            "None None False False");
  EXPECT_EQ(ChatTemplate::parse("{{ bos_token }}", "t", {{"bos_token", "<s>"}}).render({{"bos_token", "mine"}}),
            "mine");
  EXPECT_EQ(render("{{ strftime_now('%Y') | length }}"), "4");
}

TEST(ChatTemplate, RaisedTextIsTheWholeMessage) {
  EXPECT_EQ(error_of<RunError>("a{{ raise_exception('Only {this} & 你') }}"), "Only {this} & 你");
}

TEST(ChatTemplate, ErrorsNameTheLineAndTheConstruct) {
  EXPECT_THAT(error_of<RunError>("\n\n{{ missing.x }}"), HasSubstr("t: line 3: 'missing' is undefined"));
  EXPECT_THAT(error_of<UsageError>("\n{{ 1 | pprint }}"), HasSubstr("t: line 2: the filter 'pprint'"));
  EXPECT_THAT(error_of<UsageError>("{{ 1 is weird }}"), HasSubstr("the test 'weird'"));
  EXPECT_THAT(error_of<UsageError>("\n\n{% include 'x' %}"), HasSubstr("line 3: the tag 'include'"));
  EXPECT_THAT(error_of<UsageError>("{% for x in y recursive %}{% endfor %}"), HasSubstr("recursive"));
  EXPECT_THAT(error_of<UsageError>("{{ 'a'.format(1) }}"), HasSubstr("str.format"));
  EXPECT_THAT(error_of<UsageError>("{{ '%s' % 1 }}"), HasSubstr("%"));
  EXPECT_THAT(error_of<UsageError>("{{ x[1, 2] }}"), HasSubstr("a subscript with a comma"));
  EXPECT_THAT(error_of<UsageError>("{{ cycler(1) }}"), HasSubstr("cycler"));
  EXPECT_THAT(error_of<InputError>("\n{% if x %}"), HasSubstr("t: line 2: expected {% endif"));
  EXPECT_THAT(error_of<InputError>("\xff"), HasSubstr("UTF-8"));
  EXPECT_THAT(error_of<RunError>("x", Json{{"messages", 5}}), HasSubstr("list of messages"));
  EXPECT_THAT(error_of<RunError>("x", Json{{"big", 18446744073709551615u}}), HasSubstr("64 bits"));
}

// Each of these would run, grow or nest for ever; all end with an error, and soon.
TEST(ChatTemplate, HostileTemplatesEnd) {
  const std::string loops = "{% for a in range(100000) %}{% for b in range(100000) %}";
  const std::vector<std::string> sources = {
      loops + "{% endfor %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}",
      "{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "{{ 'x' * 1000000000000 }}",
      "{{ [1] * 1000000000000 }}",
      "{{ 'x'.ljust(1000000000) }}",
      "{{ 'x' | indent(1000000000) }}",
      "{% set ns = namespace(l=[]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
      "{% set ns = namespace(l=[]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l == ns.l "
      "+ [] }}"
      "{{ ns.l | tojson }}",
      "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}",
      "{% set ns = namespace(l={}) %}{% for i in range(100000) %}{% set ns.l = {'a': ns.l} %}{% endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% for j in [ns.l] %}{% set ns.l = loop %}{% endfor "
      "%}{% endfor %}",
      "{% set ns = namespace(l='a') %}{% for i in range(100000) %}{% set ns.l = [ns.l].index %}{% endfor %}",
      "{{ 2 ** 1000000000 }}",
      "{{ range(10000000000000) | list }}",
      std::string(100000, '(') + ")",
      "{{ " + std::string(100000, '[') + " }}",
      "{{ " + std::string(200000, '-') + "1 }}",
      "{{ 1" +
          [] {
            std::string s;
            for (int i = 0; i < 100000; ++i) s += "+1";
            return s;
          }() +
          " }}",
      "{{ a" +
          [] {
            std::string s;
            for (int i = 0; i < 100000; ++i) s += ".a";
            return s;
          }() +
          " }}",
      "{{ a" +
          [] {
            std::string s;
            for (int i = 0; i < 100000; ++i) s += "|e";
            return s;
          }() +
          " }}",
      [] {
        std::string s = "{{ ";
        for (int i = 0; i < 50000; ++i) s += "not ";
        return s + "1 }}";
      }(),
      [] {
        std::string s;
        for (int i = 0; i < 50000; ++i) s += "{% if 1 %}";
        return s;
      }(),
      std::string((1 << 20) + 1, 'x'),
  };
  for (const std::string& source : sources) {
    const auto begin = std::chrono::steady_clock::now();
    const std::string shown = source.substr(0, 120);
    try {
      render(source);
      if (source[0] != '(') ADD_FAILURE() << "ended without an error: " << shown;
    } catch (const Error&) {
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took.count(), 20) << shown;
  }
}

TEST(ChatTemplate, NamespacesMayHoldEachOther) {  // and still be freed
  EXPECT_EQ(render("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}{% set a.me = a %}"
                   "{{ a.b.a.me is defined }}"),
            "True");
}

}  // namespace
}  // namespace lazytrain::text
