#include "cuda/kernel.h"
#include "cuda/softmax.h"
#include "ops/cuda_kernels.h"

namespace lazytrain::ops::on_cuda {
namespace {

using namespace lazytrain::cuda;

constexpr int kMostThreads = 512;
constexpr int kWarps = kMostThreads / kWarp;

// A block a row; 512 threads read it once for maximum and sum and once for the gradient, which takes its place: a tile
// is read before anything is written, and what is written never reaches beyond what was read. Moves 8 V bytes a row,
// and 2 V (bf16) or 4 V for the gradient: 80 % of the memory rate; a row of 600 KB may stay in L2 for the second pass.
template <typename T>
__global__ void cross_entropy_kernel(Rows<float> logits, const int32_t* targets, int64_t cols, double scale,
                                     double* nll, Rows<T> dlogits, bool aligned) {
  double* const space = shared_memory<double>();
  const int32_t target = targets[block_x()];
  float* row = logits.row(block_x());
  T* to = dlogits ? dlogits.row(block_x()) : nullptr;
  const bool counted = target >= 0;
  const RowStatistics s = counted ? row_statistics(row, cols, 1.0f, aligned, space) : RowStatistics{0, 1};
  if (thread_x() == 0) {
    nll[block_x()] = counted ? log(s.sum) + (static_cast<double>(s.max) - static_cast<double>(row[target])) : 0.0;
  }
  if (to == nullptr) return;
  sync_threads();  // the target's logit is read before it is overwritten
  const auto factor = static_cast<float>(scale / s.sum);
  for (int64_t tile = 0; tile < cols; tile += block_threads() * kLanes<float>) {
    const int64_t c = tile + thread_x() * kLanes<float>;
    const int n = c < cols ? lanes_at<float>(c, cols) : 0;
    Lanes<float> v{};
    if (n > 0 && counted) v = load_lanes(row + c, n, aligned);
    for (int i = 0; i < kLanes<float>; ++i) {
      v.v[i] = counted ? exp_of(v.v[i] - s.max) * factor : 0.0f;
      if (counted && c + i == target) v.v[i] -= static_cast<float>(scale);
    }
    sync_threads();
    store_in_place(v, to + c, n, aligned);
  }
}

// One block, in the order of the rows. 12 bytes a row.
__global__ void loss_kernel(const double* nll, const int32_t* targets, int64_t rows, bool add, double* loss) {
  double* const space = shared_memory<double>();
  const double sum = ordered_sum(nll, rows, space);
  int32_t counted = 0;
  for (int64_t r = thread_x(); r < rows; r += block_threads()) counted += targets[r] >= 0 ? 1 : 0;
  const double count = block_sum(static_cast<double>(counted), space);
  if (thread_x() > 0) return;
  loss[0] = add ? loss[0] + sum : sum;
  loss[1] = add ? loss[1] + count : count;
}

}  // namespace

void cross_entropy(Stream& stream, const CrossEntropy& call) {
  for_activation(call.dlogits.dtype, [&]<typename T>(T) {
    launch(&cross_entropy_kernel<T>, {call.logits.rows, 1}, threads_for<float>(call.logits.cols, kMostThreads),
           kWarps * static_cast<int64_t>(sizeof(double)), stream, rows_of<float>(call.logits), call.targets,
           call.logits.cols, call.scale, call.nll, rows_of<T>(call.dlogits), all_aligned(call.logits));
  });
}

void add_losses(Stream& stream, const double* nll, const int32_t* targets, int64_t rows, bool add, double* loss) {
  constexpr int kThreads = 256;
  launch(&loss_kernel, {1, 1}, kThreads, kThreads * 8, stream, nll, targets, rows, add, loss);
}

}  // namespace lazytrain::ops::on_cuda
