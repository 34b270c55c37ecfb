#include "model/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/arith.h"
#include "base/error.h"
#include "base/json.h"
#include "model/safetensors_header.h"

namespace lazytrain::model {
namespace {

constexpr int64_t kLengthBytes = 8;

// The number of elements; throws unless the tensor's offsets are as far apart as its dtype and shape say.
int64_t checked_count(const DeclaredTensor& tensor, std::string_view where) {
  int64_t count = 1;
  bool fits = true;
  for (const int64_t dimension : tensor.shape) fits = fits && checked_mul(count, dimension, count);
  int64_t bits = 0;
  if (!fits || !checked_mul(count, tensor.type->bits, bits)) {
    throw InputError("{}: tensor \"{}\": found shape {}, which has more elements than any file can hold", where,
                     tensor.name, format_shape(tensor.shape));
  }
  if (bits % 8 != 0) {
    throw InputError("{}: tensor \"{}\": found {} {} of {} bits, expected a whole number of bytes", where, tensor.name,
                     tensor.type->name, format_shape(tensor.shape), bits);
  }
  if (tensor.end < tensor.begin || tensor.end - tensor.begin != bits / 8) {
    throw InputError("{}: tensor \"{}\": found data_offsets [{}, {}], expected {} bytes for {} {}", where, tensor.name,
                     tensor.begin, tensor.end, bits / 8, tensor.type->name, format_shape(tensor.shape));
  }
  return count;
}

// The tensors, in order of their data, must tile [0, data_bytes).
void check_tiling(const std::vector<DeclaredTensor>& tensors, int64_t data_bytes, std::string_view where) {
  int64_t covered = 0;
  for (const auto& tensor : tensors) {
    if (tensor.end > data_bytes) {
      throw InputError(
          "{}: tensor \"{}\": found data_offsets [{}, {}], expected an end within the file's {} data bytes", where,
          tensor.name, tensor.begin, tensor.end, data_bytes);
    }
    if (tensor.begin != covered) {
      throw InputError("{}: tensor \"{}\": found data_offsets [{}, {}], expected a begin of {} ({})", where,
                       tensor.name, tensor.begin, tensor.end, covered,
                       tensor.begin > covered ? "there is a hole before it" : "it overlaps the tensor before it");
    }
    covered = tensor.end;
  }
  if (covered != data_bytes) {
    throw InputError("{}: found {} bytes after the last tensor's data, expected none", where, data_bytes - covered);
  }
}

}  // namespace

std::string format_shape(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

void check_tensor_name(std::string_view name, std::string_view where) {
  if (name.empty() || std::ssize(name) > kMaxNameBytes) {
    throw InputError("{}: a tensor name of {} bytes (\"{}\"), expected 1 to {}", where, name.size(), shown(name, 40),
                     kMaxNameBytes);
  }
  for (size_t i = 0; i < name.size(); ++i) {
    const auto byte = static_cast<uint8_t>(name[i]);
    // C0 and DEL are one byte in UTF-8, C1 (U+0080 to U+009F) is c2 80 to c2 9f.
    const bool c1 = byte == 0xc2 && i + 1 < name.size() && static_cast<uint8_t>(name[i + 1]) < 0xa0;
    if (byte < 0x20 || byte == 0x7f || c1) {
      throw InputError("{}: tensor name \"{}\": found a control character at byte {}, expected printable text", where,
                       shown(name), i);
    }
  }
}

DType TensorEntry::required_dtype() const {
  if (!dtype) {
    throw InputError(
        "{}: tensor \"{}\": found dtype {}, expected one of F32, BF16, F16, I16, I32, I64, U8; save the "
        "model as bfloat16",
        file->where(), name, dtype_name);
  }
  return *dtype;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : where_(path.string()), map_(MappedFile(path)) {
  try {
    parse(map_->bytes());
  } catch (const InputError& error) {
    throw InputError("{}. The file is damaged or no safetensors file: get it again, or have its writer save it again.",
                     error.what());
  }
}

SafetensorsFile::SafetensorsFile(std::span<const std::byte> bytes, std::string where) : where_(std::move(where)) {
  parse(bytes);
}

void SafetensorsFile::parse(std::span<const std::byte> bytes) {
  const int64_t size = std::ssize(bytes);
  if (size < kLengthBytes) {
    throw InputError("{}: found {} bytes, expected a safetensors file (at least 8)", where_, size);
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kLengthBytes);
  if (header_bytes > static_cast<uint64_t>(kMaxHeaderBytes)) {
    throw InputError("{}: found a header length of {} bytes, expected at most {}", where_, header_bytes,
                     kMaxHeaderBytes);
  }
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(header_bytes);
  if (data_begin > size) {
    throw InputError("{}: found {} bytes, expected the {} of its header; the file is cut off", where_, size,
                     data_begin);
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, header_bytes);
  SafetensorsHeader header = parse_safetensors_header(text, where_);
  metadata_ = std::move(header.metadata);

  auto& declared = header.tensors;
  std::stable_sort(declared.begin(), declared.end(),
                   [](const auto& a, const auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::vector<int64_t> counts;
  counts.reserve(declared.size());
  for (const auto& tensor : declared) counts.push_back(checked_count(tensor, where_));
  check_tiling(declared, size - data_begin, where_);
  tensors_.reserve(declared.size());
  for (size_t i = 0; i < declared.size(); ++i) {
    auto& tensor = declared[i];
    tensors_.push_back({.name = std::move(tensor.name),
                        .dtype_name = tensor.type->name,
                        .dtype = dtype_from_name(tensor.type->name),
                        .shape = std::move(tensor.shape),
                        .count = counts[i],
                        .bytes = tensor.end - tensor.begin,
                        .data = bytes.data() + data_begin + tensor.begin,
                        .file = this});
  }
  for (const auto& tensor : tensors_) by_name_.push_back(&tensor);
  std::sort(by_name_.begin(), by_name_.end(), [](auto* a, auto* b) { return a->name < b->name; });
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto it = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [](const TensorEntry* entry, std::string_view key) { return entry->name < key; });
  return it != by_name_.end() && (*it)->name == name ? *it : nullptr;
}

void SafetensorsFile::check_unchanged() const {
  if (!map_) return;
  std::error_code error;
  const auto now = std::filesystem::file_size(where_, error);
  if (error || now != map_->bytes().size()) {
    throw InputError(
        "{}: the file was changed while it was read (found {}, expected {} bytes); run again when it is at rest",
        where_, error ? error.message() : fmt::format("{} bytes", now), map_->bytes().size());
  }
}

void SafetensorsFile::drop(const TensorEntry& tensor, int64_t first, int64_t count) const {
  if (!map_ || tensor.bytes == 0) return;
  const int64_t element = tensor.bytes / tensor.count;
  map_->drop(static_cast<size_t>(tensor.data - map_->bytes().data() + first * element),
             static_cast<size_t>(count * element));
}

}  // namespace lazytrain::model
