#include "cli/model_output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace lazytrain::cli {

DType parse_weight_dtype(const std::string& name) {
  if (name == "bf16") return DType::kBF16;
  if (name == "fp32") return DType::kF32;
  throw UsageError("'{}' is not a dtype of weights here: bf16 or fp32", name);
}

namespace {

// Before a model is read or made for it.
void require_writable_folder(const std::filesystem::path& folder, const std::filesystem::path& target) {
  if (!std::filesystem::is_directory(folder)) {
    throw RunError("{}: cannot be made: {} is no folder: name another one", target.string(), folder.string());
  }
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return;
  throw RunError("{}: cannot be written: {}: {}: name another folder", target.string(), folder.string(),
                 std::strerror(errno));
}

}  // namespace

void require_writable_target(const std::filesystem::path& target, bool force) {
  std::error_code error;
  if (!std::filesystem::exists(target, error)) {
    std::filesystem::path there = std::filesystem::absolute(target, error).parent_path();
    while (!std::filesystem::exists(there, error) && there != there.parent_path()) there = there.parent_path();
    require_writable_folder(there, target);
    return;
  }
  if (!std::filesystem::is_directory(target, error)) throw UsageError("{}: exists and is no folder", target.string());
  if (!force && !std::filesystem::is_empty(target, error)) {
    throw UsageError("{}: the folder is not empty: add --force to replace the model in it, or name another",
                     target.string());
  }
  require_writable_folder(target, target);
}

}  // namespace lazytrain::cli
