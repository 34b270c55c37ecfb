#include "model/checkpoint_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"

namespace lazytrain::model {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxIndexBytes = int64_t{32} << 20;
constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

// True when `path` is there. A symlink to nothing is what an interrupted download leaves in the hub cache.
bool present(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error)) return true;
  if (fs::is_symlink(path, error)) {
    throw InputError("{}: is a link to a file that is not there ({}); download the model again", path.string(),
                     fs::read_symlink(path, error).string());
  }
  return false;
}

[[noreturn]] void no_weights(const fs::path& folder) {
  std::error_code error;
  bool pickles = false;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const auto extension = it->path().extension();
    pickles = pickles || extension == ".bin" || extension == ".pt" || extension == ".pth";
  }
  if (pickles) {
    throw UsageError(
        "{}: holds PyTorch pickles (.bin), which can run code when they are read, and no {}. Convert it with "
        "transformers: AutoModelForCausalLM.from_pretrained(folder).save_pretrained(out).",
        folder.string(), kSingleFile);
  }
  throw UsageError("{}: no weights here; expected {} or {} with its shards. Download the model's safetensors files.",
                   folder.string(), kSingleFile, kIndexFile);
}

void check_shard_name(const std::string& name, const fs::path& index) {
  const bool plain = !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
                     name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos &&
                     name.find("..") == std::string::npos;
  if (!plain) {
    throw InputError("{}: weight_map: found the file \"{}\", expected the plain name of a file in the same folder",
                     index.string(), shown(name));
  }
}

// Tensor name -> file name, checked to be strings and plain file names.
std::map<std::string, std::string, std::less<>> read_weight_map(const JsonObject& root, const fs::path& index) {
  std::map<std::string, std::string, std::less<>> result;
  const JsonObject weight_map = root.object("weight_map");  // keeps the name for messages
  for (const auto& [name, file] : weight_map.json().items()) {
    if (!file.is_string()) {
      throw InputError("{}: weight_map: tensor \"{}\": found {}, expected a file name", index.string(), shown(name),
                       file.type_name());
    }
    check_shard_name(file.get_ref<const std::string&>(), index);
    result.emplace(name, file.get<std::string>());
  }
  return result;
}

// A message when metadata.total_size is there and not the sum of the tensors' bytes, else "".
std::string total_size_warning(const JsonObject& root, int64_t actual, const fs::path& index) {
  if (!root.has("metadata") || !root.json()["metadata"].is_object()) return "";
  const Json& metadata = root.json()["metadata"];
  const auto total = metadata.find("total_size");
  if (total == metadata.end()) return "";
  const bool equal = total->is_number_integer() ? *total == Json(actual)
                     : total->is_number()       ? total->get<double>() == static_cast<double>(actual)
                                                : false;
  if (equal) return "";
  return fmt::format("{}: metadata.total_size is {}, the tensors have {} bytes; the tensors are used", index.string(),
                     shown(total->dump(), 40), actual);
}

}  // namespace

ModelFolder::ModelFolder(const fs::path& folder) : folder_(folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw UsageError(
        "'{}' is not a folder. A model is a local Hugging Face folder (config.json, tokenizer files, safetensors "
        "weights); download one first, for example with 'hf download NAME --local-dir FOLDER'.",
        folder.string());
  }
  if (present(folder / kSingleFile)) {  // preferred when both are there, as transformers does
    files_.push_back(std::make_unique<SafetensorsFile>(folder / kSingleFile));
    for (const auto& tensor : files_.front()->tensors()) tensors_.push_back(&tensor);
  } else if (present(folder / kIndexFile)) {
    open_shards(folder / kIndexFile);
  } else {
    no_weights(folder);
  }
  std::sort(tensors_.begin(), tensors_.end(), [](auto* a, auto* b) { return a->name < b->name; });
  for (const auto& warning : warnings_) spdlog::warn("{}", warning);
}

void ModelFolder::open_shards(const fs::path& index) {
  const Json json = read_json(index, kMaxIndexBytes);
  const JsonObject root(json, index.string());
  const auto weight_map = read_weight_map(root, index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);

  std::map<std::string_view, const TensorEntry*> found;
  int64_t total_bytes = 0;
  for (const auto& name : names) {
    if (!present(folder_ / name)) {
      throw InputError("{}: names the shard \"{}\", which is not in the folder; download the model again",
                       index.string(), shown(name));
    }
    files_.push_back(std::make_unique<SafetensorsFile>(folder_ / name));
    for (const auto& tensor : files_.back()->tensors()) {
      const auto [other, added] = found.emplace(tensor.name, &tensor);
      if (!added) {
        throw InputError("{}: tensor \"{}\" stands in two shards, {} and {}, expected one", index.string(), tensor.name,
                         other->second->file->where(), tensor.file->where());
      }
      if (!weight_map.contains(tensor.name)) {
        throw InputError("{}: tensor \"{}\" of the shard \"{}\" is missing in the weight_map", index.string(),
                         tensor.name, name);
      }
      tensors_.push_back(&tensor);
      total_bytes += tensor.bytes;
    }
  }
  for (const auto& [tensor, file] : weight_map) {
    const auto it = found.find(tensor);
    if (it == found.end() || it->second->file->where() != (folder_ / file).string()) {
      throw InputError("{}: tensor \"{}\" is not in the shard \"{}\", where the weight_map says it is", index.string(),
                       shown(tensor), shown(file));
    }
  }
  if (auto warning = total_size_warning(root, total_bytes, index); !warning.empty()) {
    warnings_.push_back(std::move(warning));
  }
}

const TensorEntry* ModelFolder::find(std::string_view name) const {
  const auto it = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const TensorEntry* entry, std::string_view key) { return entry->name < key; });
  return it != tensors_.end() && (*it)->name == name ? *it : nullptr;
}

const TensorEntry& ModelFolder::at(std::string_view name) const {
  const TensorEntry* entry = find(name);
  if (entry == nullptr) {
    throw InputError(
        "{}: the tensor \"{}\" is missing in the weights; the download is incomplete or config.json belongs "
        "to another model",
        folder_.string(), name);
  }
  return *entry;
}

void ModelFolder::check_unchanged() const {
  for (const auto& file : files_) file->check_unchanged();
}

}  // namespace lazytrain::model
