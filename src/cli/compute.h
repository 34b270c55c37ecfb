// The value of --compute.
#pragma once

#include <string>

#include "base/dtype.h"
#include "base/error.h"

namespace lazytrain::cli {

// `where` says in a message which value is wrong.
inline DType parse_compute(const std::string& name, const std::string& where = "--compute") {
  if (name == "bf16") return DType::kBF16;
  if (name == "fp32") return DType::kF32;
  throw UsageError("{}: '{}' is not one of bf16, fp32", where, name);
}

}  // namespace lazytrain::cli
