// The weights of a Hugging Face model folder, whether they lie in one file or in shards.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/safetensors.h"

namespace lazytrain::model {

// Opens `folder`/model.safetensors or, when that is absent, the shards of `folder`/model.safetensors.index.json.
// Each may be a symlink (the hub cache lies on disk that way); a file name in the index must be a plain name.
// Throws UsageError when there is no folder or no safetensors weights in it (says what to do), and InputError when a
// file is broken, a shard is missing, the index names a path, a tensor is not in the shard that the index says, stands
// in two shards, or is missing in the index. A total_size that does not add up is a warning.
class ModelFolder {
 public:
  explicit ModelFolder(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return folder_; }
  const std::vector<const TensorEntry*>& tensors() const { return tensors_; }  // sorted by name
  const TensorEntry* find(std::string_view name) const;                        // null when absent
  // As find(); a missing tensor is an InputError that names folder and tensor.
  const TensorEntry& at(std::string_view name) const;
  const std::vector<std::string>& warnings() const { return warnings_; }  // already logged
  // Call when all reading is done; see SafetensorsFile::check_unchanged.
  void check_unchanged() const;

 private:
  void open_shards(const std::filesystem::path& index);

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<const TensorEntry*> tensors_;
  std::vector<std::string> warnings_;
};

}  // namespace lazytrain::model
