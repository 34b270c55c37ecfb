// TensorBoard event files: TFRecord framing around Event protobufs with one scalar each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace lazytrain::train {

class TensorBoardWriter {
 public:
  // Creates the folder and a file events.out.tfevents.* in it. Throws RunError.
  explicit TensorBoardWriter(const std::filesystem::path& folder);
  void scalar(std::string_view tag, int64_t step, double value);
  void flush();

 private:
  void record(std::string_view event);
  std::filesystem::path path_;
  std::ofstream out_;
};

// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78) and its TFRecord mask: rotate right by 15, add 0xa282ead8.
uint32_t crc32c(std::string_view bytes);
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace lazytrain::train
