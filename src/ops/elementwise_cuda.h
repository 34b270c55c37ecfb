// The grid of kernels that go once over the elements of a matrix: a block has vectors of one row.
#pragma once

#include "cuda/kernel.h"

namespace lazytrain::ops::on_cuda {

inline constexpr int kElementThreads = 128;

struct Place {
  int64_t row, column;
  int n;  // elements of the thread's vector; none: <= 0
};

template <typename T>
__device__ Place place(int64_t cols) {
  const int64_t c = (cuda::block_y() * cuda::block_threads() + cuda::thread_x()) * cuda::kLanes<T>;
  return {cuda::block_x(), c, c < cols ? cuda::lanes_at<T>(c, cols) : 0};
}

// Launches a kernel that asks for its place<T>(cols).
template <typename T, typename Kernel, typename... Arguments>
void launch_elements(Kernel* kernel, int64_t rows, int64_t cols, cuda::Stream& stream, const Arguments&... arguments) {
  const int threads = cuda::threads_for<T>(cols, kElementThreads);
  const int64_t columns = static_cast<int64_t>(threads) * cuda::kLanes<T>;
  cuda::launch(kernel, {rows, (cols + columns - 1) / columns}, threads, 0, stream, arguments...);
}

}  // namespace lazytrain::ops::on_cuda
