#include "train/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstring>

#include "base/error.h"

namespace lazytrain::train {
namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = c;
  }
  return table;
}
constexpr auto kCrcTable = make_crc_table();

template <typename T>
std::string little_endian(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

// Protobuf wire format: key = field << 3 | type (0 varint, 1 fixed 64, 2 length-delimited, 5 fixed 32).
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}
std::string delimited(int field, std::string_view body) {
  return varint(static_cast<uint64_t>(field) << 3 | 2) + varint(body.size()) + std::string(body);
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Event { double wall_time = 1; ... }
std::string event_head() { return varint(1 << 3 | 1) + little_endian(wall_time()); }

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (const char byte : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8u; }

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder, AppendFile::Tell tell) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw RunError("{}: the folder cannot be made: {}", folder.string(), error.message());
  const auto name = fmt::format("events.out.tfevents.{}.{}", static_cast<int64_t>(wall_time()), ::getpid());
  file_ = std::make_unique<AppendFile>(folder / name, std::move(tell));
  record(event_head() + delimited(3, "brain.Event:2"));  // Event.file_version
}

void TensorBoardWriter::scalar(std::string_view tag, int64_t step, double value) {
  // Summary.Value { string tag = 1; float simple_value = 2; }
  const std::string entry = delimited(1, tag) + varint(2 << 3 | 5) + little_endian(static_cast<float>(value));
  const std::string summary = delimited(1, entry);
  record(event_head() + varint(2 << 3 | 0) + varint(static_cast<uint64_t>(step)) + delimited(5, summary));
}

void TensorBoardWriter::record(std::string_view event) {
  const std::string length = little_endian(static_cast<uint64_t>(event.size()));
  file_->append(length + little_endian(masked_crc32c(length)) + std::string(event) +
                little_endian(masked_crc32c(event)));
}

}  // namespace lazytrain::train
