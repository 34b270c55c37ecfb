#include "model/safetensors_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "base/arith.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "model/checkpoint_reader.h"
#include "model/safetensors.h"

namespace lazytrain::model {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

std::string quoted(const std::string& text) { return Json(text).dump(); }

// The 8 length bytes and the header, spaces at its end so that the data starts at a multiple of 8.
std::string format_header(std::span<const TensorSpec> tensors, const SafetensorsMetadata& metadata) {
  std::string text = "{";
  const auto item = [&](const std::string& key, const std::string& value) {
    if (text.size() > 1) text += ',';
    text += key + ":" + value;
  };
  if (!metadata.empty()) item("\"__metadata__\"", Json(metadata).dump());
  int64_t offset = 0;
  for (const auto& tensor : tensors) {
    const int64_t end = offset + bytes_of(tensor);
    item(quoted(tensor.name), fmt::format(R"({{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                          name_of(tensor.dtype), fmt::join(tensor.shape, ","), offset, end));
    offset = end;
  }
  text += "}";
  text.resize(static_cast<size_t>(align_up(std::ssize(text), 8)), ' ');
  std::string header(8, '\0');
  for (size_t i = 0; i < 8; ++i) header[i] = static_cast<char>((text.size() >> (8 * i)) & 0xff);
  return header + text;
}

// Sum of all bytes; the names are checked on the way.
int64_t checked_total(std::span<const TensorSpec> tensors, const std::string& where) {
  std::set<std::string_view> names;
  int64_t total = 0;
  for (const auto& tensor : tensors) {
    try {
      check_tensor_name(tensor.name, where);
    } catch (const InputError& error) {
      throw RunError("{}", error.what());
    }
    if (tensor.name == "__metadata__" || !names.insert(tensor.name).second) {
      throw RunError("{}: the tensor name \"{}\" is declared twice or reserved", where, tensor.name);
    }
    if (!checked_add(total, bytes_of(tensor), total)) throw RunError("{}: more bytes than a file can have", where);
  }
  return total;
}

void compare(const TensorEntry* found, const TensorSpec& tensor, const std::string& where) {
  if (found == nullptr || found->dtype != tensor.dtype || found->shape != tensor.shape) {
    throw RunError("{}: tensor \"{}\": read back {}, expected {} {}; the file system lost what was written", where,
                   tensor.name,
                   found == nullptr ? "nothing" : fmt::format("{} {}", found->dtype_name, format_shape(found->shape)),
                   name_of(tensor.dtype), format_shape(tensor.shape));
  }
}

void write_tensor(AtomicFile& file, const TensorSpec& tensor, size_t index, const TensorSource& source,
                  const std::string& where) {
  const int64_t expected = bytes_of(tensor);
  int64_t given = 0;
  source(index, [&](std::span<const std::byte> piece) {
    given += std::ssize(piece);
    if (given <= expected) file.write(piece);
  });
  if (given != expected) {
    throw RunError("{}: tensor \"{}\": {} bytes were given, expected {} for {} {}", where, tensor.name, given, expected,
                   name_of(tensor.dtype), format_shape(tensor.shape));
  }
}

// Tensor counts of the shards, in the caller's order.
std::vector<size_t> cut_shards(std::span<const TensorSpec> tensors, int64_t shard_bytes) {
  std::vector<size_t> counts;
  int64_t filled = 0;
  for (const auto& tensor : tensors) {
    const int64_t bytes = bytes_of(tensor);
    if (counts.empty() || (filled > 0 && bytes > shard_bytes - filled)) {
      counts.push_back(0);
      filled = 0;
    }
    ++counts.back();
    filled += bytes;
  }
  if (counts.empty()) counts.push_back(0);
  return counts;
}

bool is_shard_name(const std::string& name) {
  return name.starts_with("model-") && name.ends_with(".safetensors") && name.find("-of-") != std::string::npos;
}

// Removes weights that an earlier export left and this one did not write.
void remove_stale(const fs::path& folder, const std::vector<std::string>& written) {
  std::vector<fs::path> stale;
  for (const auto& item : fs::directory_iterator(folder)) {
    const std::string name = item.path().filename().string();
    const bool weights = name == kSingleFile || name == kIndexFile || is_shard_name(name);
    if (weights && std::find(written.begin(), written.end(), name) == written.end()) stale.push_back(item.path());
  }
  for (const auto& path : stale) fs::remove(path);
  if (!stale.empty()) fsync_folder(folder);
}

void write_index(const fs::path& path, std::span<const TensorSpec> tensors, const std::vector<size_t>& counts,
                 const std::vector<std::string>& names, int64_t total_bytes) {
  std::map<std::string, std::string> weight_map;
  size_t next = 0;
  for (size_t shard = 0; shard < counts.size(); ++shard) {
    for (size_t i = 0; i < counts[shard]; ++i) weight_map[tensors[next++].name] = names[shard];
  }
  const Json index = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}};
  write_file(path, index.dump(2) + "\n");
}

}  // namespace

int64_t bytes_of(const TensorSpec& tensor) {
  int64_t bytes = size_of(tensor.dtype);
  for (const int64_t dimension : tensor.shape) {
    if (dimension < 0 || !checked_mul(bytes, dimension, bytes)) {
      throw RunError("tensor \"{}\": the shape {} is no shape", tensor.name, format_shape(tensor.shape));
    }
  }
  return bytes;
}

void write_safetensors(const fs::path& path, std::span<const TensorSpec> tensors, const SafetensorsMetadata& metadata,
                       const TensorSource& source) {
  const std::string where = path.string();
  const int64_t total = checked_total(tensors, where);
  std::string header;
  try {
    header = format_header(tensors, metadata);
  } catch (const Json::exception&) {
    throw RunError("{}: a tensor name or metadata text is not UTF-8", where);
  }
  if (std::ssize(header) - 8 > kMaxHeaderBytes || std::ssize(tensors) > kMaxTensors) {
    throw RunError("{}: {} tensors with a header of {} bytes are more than a reader accepts", where, tensors.size(),
                   header.size() - 8);
  }
  AtomicFile file(path);
  file.reserve(std::ssize(header) + total);
  file.write(header);
  for (size_t i = 0; i < tensors.size(); ++i) write_tensor(file, tensors[i], i, source, where);
  file.commit();

  const SafetensorsFile written(path);
  if (written.tensors().size() != tensors.size()) throw RunError("{}: read back another number of tensors", where);
  for (const auto& tensor : tensors) compare(written.find(tensor.name), tensor, where);
}

std::vector<std::string> write_model_weights(const fs::path& folder, std::span<const TensorSpec> tensors,
                                             const TensorSource& source, int64_t shard_bytes) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw RunError("{}: cannot be created: {}", folder.string(), error.message());
  const int64_t total = checked_total(tensors, folder.string());
  const std::vector<size_t> counts = cut_shards(tensors, shard_bytes);
  const SafetensorsMetadata metadata = {{"format", "pt"}};
  std::vector<std::string> names;
  if (counts.size() == 1) {
    names.push_back(kSingleFile);
  } else {
    for (size_t i = 1; i <= counts.size(); ++i) {
      names.push_back(fmt::format("model-{:05}-of-{:05}.safetensors", i, counts.size()));
    }
    // Without its index a half-replaced set of shards loads as nothing rather than as a mixture.
    if (fs::remove(folder / kIndexFile, error)) fsync_folder(folder);
  }
  size_t first = 0;
  for (size_t shard = 0; shard < counts.size(); ++shard) {
    write_safetensors(folder / names[shard], tensors.subspan(first, counts[shard]), metadata,
                      [&](size_t index, const TensorSink& sink) { source(first + index, sink); });
    first += counts[shard];
  }
  std::vector<std::string> written = names;
  if (counts.size() > 1) {
    write_index(folder / kIndexFile, tensors, counts, names, total);
    written.push_back(kIndexFile);
  }
  remove_stale(folder, written);

  const ModelFolder reopened(folder);
  for (const auto& tensor : tensors) compare(reopened.find(tensor.name), tensor, folder.string());
  return written;
}

}  // namespace lazytrain::model
