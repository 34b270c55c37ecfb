// The row ops on a CUDA device. Everything a view points to lies on the device; work is put into the stream and the
// functions return at once. Shapes, dtypes and formulas are those of the ops of the same names; rows may be any number
// of elements apart, and rows that begin at multiples of 16 bytes go by 128-bit accesses. An empty gradient view is not
// computed; `add_...` adds to what stands there.
//
// No atomics; every sum has an order that the shapes fix, so repeated calls give the same bits on every card. What each
// kernel moves, and the share of the memory rate that it should reach, stands beside it.
#pragma once

#include <cstdint>
#include <span>

#include "base/tensor_view.h"
#include "cuda/stream.h"

namespace lazytrain::ops::on_cuda {

using cuda::Stream;

// Into how many parts rows are cut for sums over them: depends on their number alone. 256 are two blocks for each
// multiprocessor of a large card.
inline constexpr int64_t kMinPartRows = 16;
inline constexpr int64_t kMostParts = 256;
constexpr int64_t row_parts(int64_t rows) {
  const int64_t parts = rows / kMinPartRows;
  return parts < 1 ? 1 : parts > kMostParts ? kMostParts : parts;
}

void rmsnorm_forward(Stream& stream, const TensorView& x, const TensorView& w, float eps, const TensorView& out,
                     const TensorView& rstd);
// `scratch` [rmsnorm_scratch_floats()] holds the parts of dw; the width is at most kMostNormWidth.
inline constexpr int64_t kMostNormWidth = 24000;  // what a block of any card since 2020 keeps in shared memory
inline int64_t rmsnorm_scratch_floats(int64_t tokens, int64_t width) { return row_parts(tokens) * width; }
struct RmsNormBackward {
  TensorView x, w, rstd, dy;
  TensorView dx;
  bool add_dx = false;
  TensorView dw;  // fp32
  bool add_dw = false;
  float* scratch = nullptr;
};
void rmsnorm_backward(Stream& stream, const RmsNormBackward& call);

// Backward is `inverse`. At most kMostFrequencies of them, which go with the launch.
inline constexpr int64_t kMostFrequencies = 256;
struct RotaryCall {
  TensorView x, y;
  const int32_t* positions = nullptr;  // on the device, [T]
  std::span<const float> inv_freq;     // on the host
  int64_t heads = 0;
  int64_t head_dim = 0;
  float scaling = 1;
  bool inverse = false;
  bool add = false;
};
void rotary(Stream& stream, const RotaryCall& call);

void swiglu_forward(Stream& stream, const TensorView& gate, const TensorView& up, const TensorView& out);
struct SwiGluBackward {
  TensorView gate, up, dy;
  TensorView dgate;
  bool add_dgate = false;
  TensorView dup;
  bool add_dup = false;
};
void swiglu_backward(Stream& stream, const SwiGluBackward& call);

// out = a + b; out may be a or b.
void add(Stream& stream, const TensorView& a, const TensorView& b, const TensorView& out);
// to = from, rows as far apart as they are.
void copy_rows(Stream& stream, const TensorView& from, const TensorView& to);
// y += b, rounded again: where no GEMM has done it before its one rounding. y [T, N], b [1, N].
void add_bias(Stream& stream, const TensorView& y, const TensorView& b);

// sums[c] (+)= sum over the rows of x, fp32 [1, N], in parts of rows whose number depends on the shape alone.
// `scratch` [column_sums_scratch_floats()].
inline int64_t column_sums_scratch_floats(int64_t rows, int64_t cols) { return row_parts(rows) * cols; }
void column_sums(Stream& stream, const TensorView& x, const TensorView& sums, bool add, float* scratch);

// out[t] = table[ids[t]]; ids on the device.
void gather_rows(Stream& stream, const TensorView& table, const int32_t* ids, const TensorView& out);

// ops/row_groups.h on the device.
struct DeviceRowGroups {
  const int32_t* order = nullptr;
  const int32_t* starts = nullptr;
  const int32_t* rows = nullptr;
  int64_t groups = 0;
};
// dtable[rows[g]] += the rows dy[order[...]] of group g, one after the other, fp32: the bits of Embedding::backward.
void scatter_add_rows(Stream& stream, const TensorView& dy, const DeviceRowGroups& groups, const TensorView& dtable);
void fill_zero(Stream& stream, const TensorView& x);  // dense

// The softmax over the vocabulary and its gradient, in place, for the rows of a chunk of logits (fp32).
//   nll[r] = log sum_v e^l_v - l_target for targets >= 0, else 0
//   dlogits = (softmax - onehot) scale in `dlogits`: fp32 the view of the logits itself, bf16 a view on the same rows'
//   memory (stride twice as many elements); empty: the loss alone. Rows without a target get zeros.
struct CrossEntropy {
  TensorView logits;
  const int32_t* targets = nullptr;  // on the device
  double scale = 1;
  double* nll = nullptr;
  TensorView dlogits;
};
void cross_entropy(Stream& stream, const CrossEntropy& call);
// loss[0] (+)= the values in their order, loss[1] (+)= how many of `targets` are >= 0.
void add_losses(Stream& stream, const double* nll, const int32_t* targets, int64_t rows, bool add, double* loss);

// The scores of attention, [heads] matrices of `rows` queries by `keys` keys of one document, fp32, rows `stride`
// floats and heads `head_step` floats apart. Query i is at place first_row + i of its document and sees the keys up to
// there.
struct Scores {
  float* data = nullptr;
  int64_t heads = 0;
  int64_t rows = 0;
  int64_t keys = 0;
  int64_t stride = 0;
  int64_t head_step = 0;
  int64_t first_row = 0;
  float scale = 1;
};
// Scores become probabilities of the dtype `as`, in their place (rows then begin where they did): 0 for keys that are
// not seen. lse [rows, heads] = ln sum e^(scale score).
void attention_probabilities(Stream& stream, const Scores& scores, DType as, const TensorView& lse);
// Scores become probabilities e^(scale score - lse), and the products dout v' in `gradients` (as scores in every
// stride) become scale P (dout v' - delta).
void attention_gradients(Stream& stream, const Scores& scores, float* gradients, DType as, const TensorView& lse,
                         const TensorView& delta);
// delta [T, heads] fp32: for each head the dot product of its part of the rows of a and b, [T, heads d].
void head_dots(Stream& stream, const TensorView& a, const TensorView& b, int64_t heads, const TensorView& delta);
// to (+)= from, fp32, rounded once.
void store_rows(Stream& stream, const TensorView& from, const TensorView& to, bool add);

}  // namespace lazytrain::ops::on_cuda

namespace lazytrain::ops {

// These functions as the plugin hands them over.
struct CudaKernels {
  decltype(&on_cuda::rmsnorm_forward) rmsnorm_forward;
  decltype(&on_cuda::rmsnorm_backward) rmsnorm_backward;
  decltype(&on_cuda::rotary) rotary;
  decltype(&on_cuda::swiglu_forward) swiglu_forward;
  decltype(&on_cuda::swiglu_backward) swiglu_backward;
  decltype(&on_cuda::add) add;
  decltype(&on_cuda::copy_rows) copy_rows;
  decltype(&on_cuda::add_bias) add_bias;
  decltype(&on_cuda::column_sums) column_sums;
  decltype(&on_cuda::gather_rows) gather_rows;
  decltype(&on_cuda::scatter_add_rows) scatter_add_rows;
  decltype(&on_cuda::fill_zero) fill_zero;
  decltype(&on_cuda::cross_entropy) cross_entropy;
  decltype(&on_cuda::add_losses) add_losses;
  decltype(&on_cuda::attention_probabilities) attention_probabilities;
  decltype(&on_cuda::attention_gradients) attention_gradients;
  decltype(&on_cuda::head_dots) head_dots;
  decltype(&on_cuda::store_rows) store_rows;
};
const CudaKernels& cuda_kernels();

}  // namespace lazytrain::ops
