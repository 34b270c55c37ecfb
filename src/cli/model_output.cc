#include "cli/model_output.h"

#include "base/error.h"

namespace lazytrain::cli {

DType parse_weight_dtype(const std::string& name) {
  if (name == "bf16") return DType::kBF16;
  if (name == "fp32") return DType::kF32;
  throw UsageError("'{}' is not a dtype of weights here: bf16 or fp32", name);
}

void require_writable_target(const std::filesystem::path& target, bool force) {
  std::error_code error;
  if (!std::filesystem::exists(target, error)) return;
  if (!std::filesystem::is_directory(target, error)) throw UsageError("{}: exists and is no folder", target.string());
  if (!force && !std::filesystem::is_empty(target, error)) {
    throw UsageError("{}: the folder is not empty: add --force to replace the model in it, or name another",
                     target.string());
  }
}

}  // namespace lazytrain::cli
