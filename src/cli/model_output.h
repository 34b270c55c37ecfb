// What new-model and export share: where a model folder is written and as what.
#pragma once

#include <filesystem>
#include <string>

#include "base/dtype.h"

namespace lazytrain::cli {

// The value of --dtype: bf16 or fp32.
DType parse_weight_dtype(const std::string& name);

// Throws UsageError when `target` is no folder, or holds files and `force` is off; RunError when nothing can be written
// there.
void require_writable_target(const std::filesystem::path& target, bool force);

}  // namespace lazytrain::cli
