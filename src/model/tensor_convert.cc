#include "model/tensor_convert.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace lazytrain::model {
namespace {

constexpr int64_t kGrain = 16384;  // elements: parts smaller than this are not worth a thread

void check_range(const TensorEntry& tensor, int64_t first, int64_t count) {
  if (first < 0 || first > tensor.count || count > tensor.count - first) {
    throw RunError("{}: tensor \"{}\": elements [{}, {} + {}) asked for, it has {}", tensor.file->where(), tensor.name,
                   first, first, count, tensor.count);
  }
}

// The element at `index` of data without alignment.
template <typename T>
T load(const std::byte* data, int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

void for_parts(int64_t total, ThreadPool* pool, FunctionRef<void(int64_t, int64_t)> body) {
  if (pool != nullptr) {
    pool->parallel_for(total, kGrain, body);
  } else if (total > 0) {
    body(0, total);
  }
}

// Calls `put(i, value)` for every i in [0, count) with element first + i as a float.
template <typename Put>
void each_float(const TensorEntry& tensor, int64_t first, int64_t count, ThreadPool* pool, const Put& put) {
  const DType dtype = tensor.required_dtype();
  const std::byte* data = tensor.data;
  const auto over = [&](auto read) {
    for_parts(count, pool, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) put(i, read(first + i));
    });
  };
  switch (dtype) {
    case DType::kF32:
      return over([data](int64_t i) { return load<float>(data, i); });
    case DType::kBF16:
      return over([data](int64_t i) { return to_float(bf16{load<uint16_t>(data, i)}); });
    case DType::kF16:
      return over([data](int64_t i) { return half_to_float(load<uint16_t>(data, i)); });
    default:
      throw InputError("{}: tensor \"{}\": found dtype {}, expected BF16, F16 or F32", tensor.file->where(),
                       tensor.name, tensor.dtype_name);
  }
}

}  // namespace

void read_as_master(const TensorEntry& tensor, std::span<bf16> hi, std::span<int16_t> lo, int64_t first,
                    ThreadPool* pool) {
  check_range(tensor, first, std::ssize(hi));
  if (!lo.empty() && lo.size() != hi.size()) {
    throw RunError("tensor \"{}\": {} remainders for {} weights", tensor.name, lo.size(), hi.size());
  }
  if (tensor.dtype == DType::kBF16) {  // the file's own bits, also of a NaN
    for_parts(std::ssize(hi), pool, [&](int64_t begin, int64_t end) {
      const auto count = static_cast<size_t>(end - begin);
      std::memcpy(hi.data() + begin, tensor.data + (first + begin) * size_of(DType::kBF16), count * sizeof(bf16));
      if (!lo.empty()) std::fill_n(lo.data() + begin, count, int16_t{0});
    });
    return;
  }
  if (lo.empty()) {
    each_float(tensor, first, std::ssize(hi), pool,
               [&](int64_t i, float value) { hi[static_cast<size_t>(i)] = split_master(value).hi; });
    return;
  }
  each_float(tensor, first, std::ssize(hi), pool, [&](int64_t i, float value) {
    const SplitMaster split = split_master(value);
    hi[static_cast<size_t>(i)] = split.hi;
    lo[static_cast<size_t>(i)] = split.lo;
  });
}

void read_as_f32(const TensorEntry& tensor, std::span<float> out, int64_t first, ThreadPool* pool) {
  check_range(tensor, first, std::ssize(out));
  each_float(tensor, first, std::ssize(out), pool,
             [&](int64_t i, float value) { out[static_cast<size_t>(i)] = value; });
}

std::span<const std::byte> exact_bytes(const TensorEntry& tensor, DType expected, int64_t bytes) {
  if (tensor.dtype != expected || tensor.bytes != bytes) {
    throw InputError("{}: tensor \"{}\": found {} {} ({} bytes), expected {} ({} bytes)", tensor.file->where(),
                     tensor.name, tensor.dtype_name, format_shape(tensor.shape), tensor.bytes, name_of(expected),
                     bytes);
  }
  return {tensor.data, static_cast<size_t>(bytes)};
}

void read_exact(const TensorEntry& tensor, DType expected, std::span<std::byte> out) {
  const std::span<const std::byte> bytes = exact_bytes(tensor, expected, std::ssize(out));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size());
}

void emit_master(std::span<const bf16> hi, std::span<const int16_t> lo, DType dtype, const TensorSink& sink) {
  if (dtype == DType::kBF16) return sink(std::as_bytes(hi));
  if (dtype != DType::kF32) throw UsageError("weights are written as bf16 or fp32, not as {}", name_of(dtype));
  if (lo.size() != hi.size()) throw RunError("{} remainders for {} weights", lo.size(), hi.size());
  constexpr size_t kPiece = size_t{1} << 18;
  std::vector<float> piece(std::min(kPiece, hi.size()));
  for (size_t begin = 0; begin < hi.size(); begin += kPiece) {
    const size_t count = std::min(kPiece, hi.size() - begin);
    for (size_t i = 0; i < count; ++i) piece[i] = merge_master({hi[begin + i], lo[begin + i]});
    sink(std::as_bytes(std::span(piece).first(count)));
  }
}

}  // namespace lazytrain::model
