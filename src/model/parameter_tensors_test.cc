#include "model/parameter_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/config_testing.h"
#include "model/family.h"

namespace lazytrain::model {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A model.safetensors with U8 tensors of one byte each.
void put_tensors(const fs::path& folder, const std::vector<std::string>& names) {
  std::string header = "{", data;
  for (const auto& name : names) {
    header += (header.size() > 1 ? ",\"" : "\"") + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" +
              std::to_string(data.size()) + "," + std::to_string(data.size() + 1) + "]}";
    data += 'x';
  }
  header += "}";
  std::string length(8, '\0');
  const uint64_t bytes = header.size();
  std::memcpy(length.data(), &bytes, 8);
  std::ofstream(folder / "model.safetensors", std::ios::binary) << length << header << data;
}

// What warn_unread() logs, a line a message with its level.
std::string logged(const graph::Graph& graph, const std::vector<std::string>& tensors) {
  const fs::path folder = fs::path(::testing::TempDir()) / "parameter_tensors_test";
  fs::create_directories(folder);
  put_tensors(folder, tensors);
  std::ostringstream text;
  const auto before = spdlog::default_logger();
  const auto logger = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_st>(text));
  logger->set_pattern("%l %v");
  spdlog::set_default_logger(logger);
  warn_unread(graph, ModelFolder(folder));
  spdlog::set_default_logger(before);
  fs::remove_all(folder);
  return text.str();
}

TEST(WarnUnread, NamesWhatTheModelDoesNotKnow) {
  const graph::Graph graph = build_graph(parse_config(testing::qwen2_json(), "config.json"));
  EXPECT_THAT(logged(graph, {"model.norm.weight", "model.visual.patch", "lm_head.weight"}),
              AllOf(HasSubstr("warning"), HasSubstr("'model.visual.patch'"), HasSubstr("info"),
                    HasSubstr("lm_head.weight is ignored"), Not(HasSubstr("model.norm"))));
}

TEST(WarnUnread, CountsWhatAFamilyLeavesOut) {
  const graph::Graph graph = build_graph(parse_config(testing::qwen3_5_json(), "config.json"));
  const std::string text = logged(graph, {"model.language_model.norm.weight", "model.visual.a", "model.visual.b",
                                          "mtp.fc.weight", "model.visuals", "extra"});
  EXPECT_THAT(text, AllOf(HasSubstr("2 tensors named model.visual.*"), HasSubstr("1 tensors named mtp.*"),
                          HasSubstr("'model.visuals'"), HasSubstr("'extra'"), Not(HasSubstr("'mtp.fc.weight'"))));
}

}  // namespace
}  // namespace lazytrain::model
