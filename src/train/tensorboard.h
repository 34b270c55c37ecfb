// TensorBoard event files: TFRecord framing around Event protobufs with one scalar each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "train/append_file.h"

namespace lazytrain::train {

class TensorBoardWriter {
 public:
  // Creates the folder and a file events.out.tfevents.* in it. Throws RunError.
  TensorBoardWriter(const std::filesystem::path& folder, AppendFile::Tell tell);
  void scalar(std::string_view tag, int64_t step, double value);

 private:
  void record(std::string_view event);
  std::unique_ptr<AppendFile> file_;
};

// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78) and its TFRecord mask: rotate right by 15, add 0xa282ead8.
uint32_t crc32c(std::string_view bytes);
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace lazytrain::train
