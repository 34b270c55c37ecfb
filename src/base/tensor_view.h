// Non-owning views of row-major matrices. A view never allocates, never frees and never checks bounds in a kernel:
// whoever makes it has proven the range (plan::validate, model import).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace lazytrain {

// [rows, cols] elements, rows `stride` elements apart (stride >= cols).
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  template <typename T>
  T* row(int64_t r) const {
    return static_cast<T*>(data) + r * stride;
  }
  bool empty() const { return data == nullptr; }
  int64_t bytes() const { return rows * cols * size_of(dtype); }  // of the elements, gaps between rows left out
  TensorView slice_rows(int64_t begin, int64_t count) const {
    return {static_cast<std::byte*>(data) + begin * stride * size_of(dtype), dtype, count, cols, stride};
  }
  TensorView slice_cols(int64_t begin, int64_t count) const {
    return {static_cast<std::byte*>(data) + begin * size_of(dtype), dtype, rows, count, stride};
  }
};

inline TensorView dense(void* data, DType dtype, int64_t rows, int64_t cols) { return {data, dtype, rows, cols, cols}; }

}  // namespace lazytrain
