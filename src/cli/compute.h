// The value of --compute.
#pragma once

#include <string>

#include "base/dtype.h"
#include "base/error.h"

namespace lazytrain::cli {

inline DType parse_compute(const std::string& name) {
  if (name == "bf16") return DType::kBF16;
  if (name == "fp32") return DType::kF32;
  throw UsageError("--compute: '{}' is not one of bf16, fp32", name);
}

}  // namespace lazytrain::cli
