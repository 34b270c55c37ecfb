// The safetensors container: writing. All tensors are declared first, then their bytes are asked for in pieces, so
// that a model of any size is written without a copy of it in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "model/tensor_convert.h"

namespace lazytrain::model {

struct TensorSpec {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
};

// Called once a tensor, in the declared order, with its index in the declaration: hands the tensor's bytes, row-major
// and little endian, to `sink` in as many pieces as it likes.
using TensorSource = std::function<void(size_t index, const TensorSink& sink)>;

using SafetensorsMetadata = std::map<std::string, std::string>;

// Elements times element size of a declared tensor. Throws RunError for a negative dimension or an overflow.
int64_t bytes_of(const TensorSpec& tensor);

// Writes one file of any size: whole under its name, or not there (temporary file, fsync, rename). Header and data keep
// the caller's order; the data starts at a multiple of 8 (declare wide types first and all of it is aligned). After the
// rename the file is opened again and every name, type and shape is compared. Throws RunError: a name twice or not
// printable, a source that gives too few or too many bytes, no space, a failed comparison.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorSpec> tensors,
                       const SafetensorsMetadata& metadata, const TensorSource& source);

inline constexpr int64_t kDefaultShardBytes = 5'000'000'000;

// Writes the weights of a Hugging Face folder (created when absent), metadata {"format": "pt"}: model.safetensors when
// `shard_bytes` of tensor data hold everything, else model-00001-of-0000N.safetensors ... and
// model.safetensors.index.json. Shards are filled in the caller's order; a tensor bigger than `shard_bytes` has its
// own. Weights of an earlier export in the folder are replaced: at no moment does the folder load as a mixture, and no
// stale shard or index stays. At the end the folder is opened again and compared with the declaration. Returns the
// names of the files written.
std::vector<std::string> write_model_weights(const std::filesystem::path& folder, std::span<const TensorSpec> tensors,
                                             const TensorSource& source, int64_t shard_bytes = kDefaultShardBytes);

}  // namespace lazytrain::model
