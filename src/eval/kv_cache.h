// Keys and values of the tokens seen so far, for every attention op of a graph.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "base/tensor_view.h"
#include "graph/graph.h"
#include "runtime/arena.h"

namespace lazytrain::eval {

// For each attention op two matrices [rows, width]. A sequence owns a range of rows, the same in all matrices, from its
// first token to its last possible one: the memory is fixed before anything is computed.
class KvCache {
 public:
  // Throws RunError when the memory is not there.
  KvCache(const graph::Graph& graph, int64_t rows, DType dtype);
  static int64_t bytes_needed(const graph::Graph& graph, int64_t rows, DType dtype);

  // The first of `rows` free rows in a row; nothing when there is no such gap.
  std::optional<int64_t> reserve(int64_t rows);
  void release(int64_t first_row);

  int64_t bytes() const { return arena_.bytes(); }
  // `layer` counts the graph's attention ops in order.
  TensorView keys(int layer, int64_t first_row, int64_t rows) const { return part(2 * layer, first_row, rows); }
  TensorView values(int layer, int64_t first_row, int64_t rows) const { return part(2 * layer + 1, first_row, rows); }

 private:
  TensorView part(int matrix, int64_t first_row, int64_t rows) const;

  int64_t rows_;
  DType dtype_;
  std::vector<int64_t> widths_;   // by matrix: keys and values of op 0, of op 1, ...
  std::vector<int64_t> offsets_;  // bytes, by matrix
  runtime::Arena arena_;
  std::map<int64_t, int64_t> used_;  // first row -> rows
};

}  // namespace lazytrain::eval
