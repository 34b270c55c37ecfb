#include "cuda/kernel.h"
#include "optim/cuda_kernels.h"
#include "optim/values_cuda.h"

namespace lazytrain::optim::on_cuda {
namespace {

using namespace lazytrain::cuda;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// A warp a block of kSumBlock values: they come by 128-bit accesses into shared memory, and lane i adds the squares of
// those whose index is i modulo 32, in double, as grad_norm.h says. Moves 2 bytes a value in bf16: 85 % of the memory
// rate, 50 % where a card has few double units (one addition a value).
template <typename T>
__global__ void squares_kernel(const T* values, int64_t n, double* block_sums, bf16* rounded, bool aligned) {
  constexpr int kStage = kWarp * kLanes<T>;
  float* const stage = shared_memory<float>() + thread_x() / kWarp * kStage;
  const int lane = thread_x() % kWarp;
  const int64_t block = block_x() * kWarps + thread_x() / kWarp;
  const int64_t begin = block * kSumBlock, end = begin + kSumBlock < n ? begin + kSumBlock : n;
  double sum = 0;
  for (int64_t first = begin; first < end; first += kStage) {
    const int64_t at = first + lane * kLanes<T>;
    const int count = at < end ? lanes_at<T>(at, end) : 0;
    Lanes<T> v = load_lanes(values + at, count, aligned);
    if (rounded != nullptr) {
      for (int i = 0; i < kLanes<T>; ++i) {
        v.v[i] = stored<bf16>(v.v[i]);
        if (i < count) rounded[at + i] = narrowed<bf16>(v.v[i]);
      }
    }
    for (int i = 0; i < kLanes<T>; ++i) stage[lane * kLanes<T> + i] = v.v[i];
    sync_warp();
    for (int i = 0; i < kLanes<T>; ++i) {
      const double x = stage[i * kWarp + lane];
      sum += x * x;  // the square is exact
    }
    sync_warp();
  }
  sum = warp_sum(sum);
  if (lane == 0 && begin < n) block_sums[block] = sum;
}

__global__ void total_kernel(const double* block_sums, int64_t count, double* total) {
  const double sum = ordered_sum(block_sums, count, shared_memory<double>());
  if (thread_x() == 0) *total = sum;
}

template <typename T>
void sum(Stream& stream, const T* values, bf16* rounded, int64_t n, double* block_sums, double* total) {
  const int64_t blocks = sum_block_count(n);
  launch(&squares_kernel<T>, {(blocks + kWarps - 1) / kWarps, 1}, kThreads, 4 * kThreads * kLanes<T>, stream, values, n,
         block_sums, rounded, starts_aligned(values));
  launch(&total_kernel, {1, 1}, kThreads, 8 * kThreads, stream, block_sums, blocks, total);
}

constexpr int64_t kFirstPart = 8192;  // what one block rounds in place
constexpr int kPartThreads = static_cast<int>(kFirstPart) / 8;

// Elements [begin, end): a thread reads its eight before anybody writes. Only the first launch, of one block, writes
// where it reads.
__global__ void round_kernel(const float* in, bf16* out, int64_t begin, int64_t end) {
  const int64_t at = begin + (block_x() * block_threads() + thread_x()) * 8;
  const int count = count_at<8>(at, end);
  Lanes<float> low{}, high{};
  if (count == 8) {
    low = load_lanes(in + at, 4, true);
    high = load_lanes(in + at + 4, 4, true);
  } else {
    low = load_lanes(in + at, count < 4 ? count : 4, false);
    high = load_lanes(in + at + 4, count < 4 ? 0 : count - 4, false);
  }
  sync_threads();
  if (count == 8) {
    store_128({{two_bf16(low.v[0], low.v[1]), two_bf16(low.v[2], low.v[3]), two_bf16(high.v[0], high.v[1]),
                two_bf16(high.v[2], high.v[3])}},
              out + at);
  } else {
    for (int i = 0; i < 8; ++i) {
      if (i < count) out[at + i] = round_bf16(i < 4 ? low.v[i] : high.v[i - 4]);
    }
  }
}

}  // namespace

void sum_of_squares(Stream& stream, const Gradient& values, int64_t n, double* block_sums, double* total) {
  for_activation(values.dtype, [&]<typename T>(T) {
    sum(stream, static_cast<const T*>(values.data), nullptr, n, block_sums, total);
  });
}

void round_to_bf16_and_sum(Stream& stream, const float* in, bf16* out, int64_t n, double* block_sums, double* total) {
  sum(stream, in, out, n, block_sums, total);
}

// Each launch writes where the one before has read: [begin, 2 begin) floats become bf16 in the place of [begin / 2,
// begin). Moves 6 bytes an element: 85 % of the memory rate where there are many.
void round_to_bf16_in_place(Stream& stream, float* data, int64_t n) {
  auto* out = reinterpret_cast<bf16*>(data);
  int64_t begin = 0;
  for (int64_t end = kFirstPart; begin < n; begin = end, end *= 2) {
    const int64_t last = end < n ? end : n, blocks = (last - begin + kFirstPart - 1) / kFirstPart;
    launch(&round_kernel, {blocks, 1}, kPartThreads, 0, stream, data, out, begin, last);
  }
}

}  // namespace lazytrain::optim::on_cuda
