// The safetensors container (8-byte little-endian header length N, N bytes of JSON, data): reading.
// Nothing of a file is believed before it has been checked; see SafetensorsFile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"

namespace lazytrain::model {

inline constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
inline constexpr int64_t kMaxTensors = 262'144;          // in one file
inline constexpr int64_t kMaxNameBytes = 1024;
inline constexpr int64_t kMaxRank = 64;

class SafetensorsFile;

// One tensor of a file: row-major, little endian, at `data` with no alignment promised.
struct TensorEntry {
  std::string name;
  std::string_view dtype_name;  // as in the file, one the format knows ("BF16", "F8_E4M3", ...)
  std::optional<DType> dtype;   // empty for a type of the format that LazyTrain does not hold
  std::vector<int64_t> shape;   // rank 0 is one element, a dimension may be 0
  int64_t count = 0;            // elements
  int64_t bytes = 0;
  const std::byte* data = nullptr;
  const SafetensorsFile* file = nullptr;  // the owner, never null in an entry that a file hands out

  // The type, or an InputError that names file and tensor when LazyTrain cannot hold it.
  DType required_dtype() const;
};

// "[151936, 896]", "[]" for rank 0.
std::string format_shape(std::span<const int64_t> shape);

// Throws InputError unless `name` is 1 to kMaxNameBytes bytes without control characters.
void check_tensor_name(std::string_view name, std::string_view where);

// A mapped, fully checked file. The constructor throws InputError, naming file, tensor, what was found and what was
// expected, unless
//   - the file holds 8 bytes, N <= kMaxHeaderBytes and 8 + N <= the file's size;
//   - the header is UTF-8 JSON that starts with '{' and has exactly the format's structure, no name twice, names
//     printable, at most kMaxTensors tensors and kMaxRank dimensions, `__metadata__` from string to string;
//   - each data_offsets [b, e] has e - b = elements * bits / 8 (products checked), dtype is one the format knows;
//   - the tensors cover the data without hole or overlap, from its first byte to the file's last.
// Memory used is within a small factor of the header's size: the JSON is read as events, no document is built.
//
// The bytes are mapped, not copied: if another process truncates the file while it is read, the kernel ends this one
// with SIGBUS. Call check_unchanged() after reading to learn of a file that was rewritten meanwhile.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  // Over bytes that the caller keeps alive; `where` stands for the path in messages.
  SafetensorsFile(std::span<const std::byte> bytes, std::string where);
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& where() const { return where_; }
  const std::vector<TensorEntry>& tensors() const { return tensors_; }  // in the order of their data
  const TensorEntry* find(std::string_view name) const;                 // null when absent
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // Throws InputError when the file's size is no longer the one that was mapped. Nothing to do for caller's bytes.
  void check_unchanged() const;
  // Tells the kernel that this tensor's pages, or those within its elements [first, first + count), are not needed
  // again soon.
  void drop(const TensorEntry& tensor) const { drop(tensor, 0, tensor.count); }
  void drop(const TensorEntry& tensor, int64_t first, int64_t count) const;

 private:
  void parse(std::span<const std::byte> bytes);

  std::string where_;
  std::optional<MappedFile> map_;
  std::vector<TensorEntry> tensors_;
  std::vector<const TensorEntry*> by_name_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace lazytrain::model
