// Writes a model as a Hugging Face folder that `transformers` loads.
#pragma once

#include <filesystem>

#include "base/dtype.h"
#include "model/config.h"
#include "runtime/model_state.h"

namespace lazytrain::train {

// config.json, safetensors (shards of 5 GB with an index) and, copied from `source` where it has them, the tokenizer's
// and generation's files. dtype BF16 (the rounded halves) or F32 (the exact masters).
void export_model(const model::ModelConfig& config, const runtime::ModelState& state,
                  const std::filesystem::path& source, const std::filesystem::path& target, DType dtype);

}  // namespace lazytrain::train
