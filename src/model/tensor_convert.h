// Element conversion between files and memory: file -> split master or float, split master -> file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/dtype.h"
#include "base/thread_pool.h"
#include "model/safetensors.h"

namespace lazytrain::model {

// Elements [first, first + hi.size()) of a BF16, F16 or F32 tensor as split master weights (base/dtype.h), exact:
// merge_master(hi, lo) is the file's value bit for bit (a NaN stays a NaN). `lo` is as long as `hi`, or empty when the
// remainder is not wanted. The file's bytes need no alignment. Throws InputError naming file and tensor for another
// dtype, RunError when the range is not inside the tensor.
void read_as_master(const TensorEntry& tensor, std::span<bf16> hi, std::span<int16_t> lo, int64_t first = 0,
                    ThreadPool* pool = nullptr);

// Elements [first, first + out.size()) of a BF16, F16 or F32 tensor as floats, exact.
void read_as_f32(const TensorEntry& tensor, std::span<float> out, int64_t first = 0, ThreadPool* pool = nullptr);

// The bytes of a tensor that must have this type (checkpoints: I16, I64, U8, F32, BF16) and this many bytes. Throws
// InputError when it has another type or another number of elements.
std::span<const std::byte> exact_bytes(const TensorEntry& tensor, DType expected, int64_t bytes);
// The same, copied.
void read_exact(const TensorEntry& tensor, DType expected, std::span<std::byte> out);

using TensorSink = std::function<void(std::span<const std::byte>)>;

// Hands split master weights to `sink` as `dtype` (BF16: hi as it is; F32: merged, in pieces of at most 1 MiB).
// Throws UsageError for another dtype.
void emit_master(std::span<const bf16> hi, std::span<const int16_t> lo, DType dtype, const TensorSink& sink);

}  // namespace lazytrain::model
