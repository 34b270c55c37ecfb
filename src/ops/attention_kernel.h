// The tiles of attention for one thread, compiled once per instruction set (Highway). Inside: fp32 tiles of 64 rows in
// scratch, small enough for L1/L2, multiplied by register blocks.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/tensor_view.h"

namespace lazytrain::ops::attention {

inline constexpr int64_t kTile = 64;      // queries, and keys, of a tile
inline constexpr int64_t kHeadBlock = 8;  // query heads that share one widened key tile

// Rows of one head after another: element (row, head, j) is at data + row·row_stride + head·head_stride + j.
struct HeadRows {
  void* data = nullptr;
  int64_t row_stride = 0;
  int64_t head_stride = 0;
};

// A block of queries against the keys of one key/value head.
struct ForwardBlock {
  DType dtype = DType::kBF16;
  int64_t head_dim = 0;
  float scale = 0;
  HeadRows q;
  HeadRows out;
  HeadRows lse;         // fp32, one element a row; data may be null
  int64_t queries = 0;  // <= kTile
  int64_t heads = 0;    // <= kHeadBlock
  TensorView k;         // [keys, head_dim]
  TensorView v;
  int64_t keys = 0;
  bool causal = false;  // query r sees keys up to keys - queries + r; that of query 0 is a multiple of kTile
};
int64_t forward_floats(int64_t head_dim, int64_t heads);
void forward(const ForwardBlock& block, float* scratch);

// One query head over one whole document.
struct BackwardHead {
  float scale = 0;
  TensorView q, k, v, out, out_grad;  // [S, head_dim]
  TensorView lse;                     // [S, 1] fp32
  TensorView dq, dk, dv;              // [S, head_dim] fp32 or the activation dtype, or empty
  bool add_dq = false, add_dk = false, add_dv = false;
};
int64_t backward_floats(int64_t head_dim, int64_t max_length);
void backward(const BackwardHead& head, float* scratch);

// to[c] (+)= Σ_i from[i·stride + c], i in order.
void sum_heads(const float* from, int64_t count, int64_t stride, const TensorView& to, int64_t row, bool add);

}  // namespace lazytrain::ops::attention
