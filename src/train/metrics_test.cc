#include "train/metrics.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/file.h"
#include "train/tensorboard.h"

namespace lazytrain::train {
namespace {

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

TEST(Metrics, ResumingDropsTheLinesBehindTheCheckpointAndATornOne) {
  const Folder folder;
  {
    MetricsWriter writer(folder.path, 0, false);
    for (int64_t step = 1; step <= 4; ++step) writer.write(line(step, 1.0));
  }
  const auto file = folder.path / "metrics.jsonl";
  write_file(file, read_file(file, 1 << 20) + "{\"step\":5,\"lo");
  {
    MetricsWriter writer(folder.path, 2, false);
    writer.write(line(3, std::numeric_limits<double>::quiet_NaN()));
  }
  const std::string text = read_file(file, 1 << 20);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  const Json last = parse_json(text.substr(text.rfind("{\"step\"")), "test");
  EXPECT_EQ(last["step"], 3);
  EXPECT_TRUE(last["loss"].is_null());
}

// The check value of CRC-32C (RFC 3720 B.4 gives the polynomial; "123456789" is its customary test input).
TEST(TensorBoard, Crc32cKnowsItsCheckValue) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
}

TEST(TensorBoard, RecordsAreFramedWithLengthAndTwoChecksums) {
  const Folder folder;
  {
    TensorBoardWriter writer(folder.path / "tb");
    writer.scalar("a", 3, 1.5);
    writer.flush();
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
