#include "train/metrics.h"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <limits>
#include <vector>

#include "base/file.h"
#include "train/tensorboard.h"

namespace lazytrain::train {
namespace {

// Files may not grow beyond `bytes` while this lives: what a full disk does to a write, without root.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit lower{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &lower);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

void ignore(const std::string&) {}

struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("metrics_test." + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

StepMetrics line(int64_t step, double loss) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = loss;
  return metrics;
}

TEST(Metrics, WhatIsDoneAboutThePlanStandsInTheLineOfItsStep) {
  StepMetrics metrics = line(3, 1.0);
  metrics.predicted_step_s = 0.5;
  metrics.predicted_exposed_s = 0.25;
  EXPECT_FALSE(to_json(metrics).contains("replan"));
  EXPECT_EQ(to_json(metrics)["predicted"]["exposed_s"], 0.25);
  metrics.replan = {{"action", "changed"}, {"policy", "lazytrain"}};
  const Json json = to_json(metrics);
  EXPECT_EQ(json["step"], 3);
  EXPECT_EQ(json["replan"]["action"], "changed");
  EXPECT_EQ(json["replan"]["policy"], "lazytrain");
}

TEST(Metrics, ResumingDropsTheLinesBehindTheCheckpointAndATornOne) {
  const Folder folder;
  {
    MetricsWriter writer(folder.path, 0, false, ignore);
    for (int64_t step = 1; step <= 4; ++step) writer.write(line(step, 1.0));
  }
  const auto file = folder.path / "metrics.jsonl";
  write_file(file, read_file(file, 1 << 20) + "{\"step\":5,\"lo");
  {
    MetricsWriter writer(folder.path, 2, false, ignore);
    writer.write(line(3, std::numeric_limits<double>::quiet_NaN()));
  }
  const std::string text = read_file(file, 1 << 20);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  const Json last = parse_json(text.substr(text.rfind("{\"step\"")), "test");
  EXPECT_EQ(last["step"], 3);
  EXPECT_TRUE(last["loss"].is_null());
}

// The steps of the lines of a file, each of which must be whole.
std::vector<int64_t> steps_in(const std::filesystem::path& file) {
  const std::string text = read_file(file, 1 << 20);
  EXPECT_TRUE(text.empty() || text.back() == '\n') << "ends inside a line";
  std::vector<int64_t> steps;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    steps.push_back(parse_json(text.substr(begin, end - begin), "line")["step"]);
    begin = end + 1;
  }
  return steps;
}

TEST(Metrics, AFullDiskIsToldOnceAndItsLinesComeLater) {
  const Folder folder;
  const auto file = folder.path / "metrics.jsonl";
  std::vector<std::string> told;
  MetricsWriter writer(folder.path, 0, true, [&](const std::string& message) { told.push_back(message); });
  writer.write(line(1, 1.0));
  ASSERT_TRUE(told.empty());
  {
    const FileSizeLimit limit(std::filesystem::file_size(file) + 100);  // in the middle of the next line
    for (int64_t step = 2; step <= 5; ++step) writer.write(line(step, 1.0));
    EXPECT_EQ(steps_in(file), std::vector<int64_t>{1});
    ASSERT_EQ(told.size(), 2u);  // metrics.jsonl, and the events beside it
    EXPECT_NE(told[0].find("metrics.jsonl: writing failed"), std::string::npos) << told[0];
    EXPECT_NE(told[1].find("tfevents"), std::string::npos) << told[1];
  }
  writer.write(line(6, 1.0));
  EXPECT_EQ(steps_in(file), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(told.size(), 4u);  // both can be written again
}

TEST(Metrics, WhatWaitsForADiskIsBoundedAndWhatIsLostIsTold) {
  const Folder folder;
  std::vector<std::string> told;
  {
    AppendFile file(folder.path / "records", [&](const std::string& message) { told.push_back(message); });
    const FileSizeLimit limit(0);
    const std::string record((1 << 20) - 1, 'x');
    for (int i = 0; i < 12; ++i) file.append(record + "\n");
  }
  EXPECT_EQ(std::filesystem::file_size(folder.path / "records"), AppendFile::kMaxWaitingBytes);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_NE(told[1].find("4 records could not be written"), std::string::npos) << told[1];
}

// The check value of CRC-32C (RFC 3720 B.4 gives the polynomial; "123456789" is its customary test input).
TEST(TensorBoard, Crc32cKnowsItsCheckValue) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
}

TEST(TensorBoard, RecordsAreFramedWithLengthAndTwoChecksums) {
  const Folder folder;
  {
    TensorBoardWriter writer(folder.path / "tb", ignore);
    writer.scalar("a", 3, 1.5);
  }
  const auto file = std::filesystem::directory_iterator(folder.path / "tb")->path();
  const std::string bytes = read_file(file, 1 << 20);
  size_t at = 0, records = 0;
  while (at < bytes.size()) {
    const std::string head = bytes.substr(at, 8);
    uint64_t length = 0;
    uint32_t head_sum = 0, body_sum = 0;
    std::memcpy(&length, head.data(), 8);
    std::memcpy(&head_sum, bytes.data() + at + 8, 4);
    ASSERT_LE(at + 16 + length, bytes.size());
    std::memcpy(&body_sum, bytes.data() + at + 12 + length, 4);
    EXPECT_EQ(head_sum, masked_crc32c(head));
    EXPECT_EQ(body_sum, masked_crc32c(bytes.substr(at + 12, length)));
    at += 16 + length;
    ++records;
  }
  EXPECT_EQ(records, 2u);
}

}  // namespace
}  // namespace lazytrain::train
