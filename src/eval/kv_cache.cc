#include "eval/kv_cache.h"

#include "base/arith.h"
#include "eval/inference_model.h"
#include "ops/attention.h"

namespace lazytrain::eval {
namespace {

constexpr int64_t kLine = 64;  // bytes

std::vector<int64_t> matrix_widths(const graph::Graph& graph) {
  std::vector<int64_t> widths;
  for (const graph::Unit& unit : graph.units) {
    for (const graph::Op& op : unit.ops) {
      const auto* attention = dynamic_cast<const ops::Attention*>(op.kind.get());
      if (attention == nullptr) continue;
      widths.insert(widths.end(), 2, attention->shape().kv_heads * attention->shape().head_dim);
    }
  }
  return widths;
}

int64_t matrix_bytes(int64_t rows, int64_t width, DType dtype) {
  return align_up(rows * width * size_of(dtype), kLine);
}

int64_t checked_bytes(int64_t bytes) {
  require_memory(bytes, "the cache of keys and values", "lower --batch or --max-new-tokens");
  return bytes;
}

}  // namespace

KvCache::KvCache(const graph::Graph& graph, int64_t rows, DType dtype)
    : rows_(rows),
      dtype_(dtype),
      widths_(matrix_widths(graph)),
      arena_(checked_bytes(bytes_needed(graph, rows, dtype)), "the cache of keys and values") {
  int64_t offset = 0;
  for (const int64_t width : widths_) {
    offsets_.push_back(offset);
    offset += matrix_bytes(rows, width, dtype);
  }
}

int64_t KvCache::bytes_needed(const graph::Graph& graph, int64_t rows, DType dtype) {
  int64_t bytes = 0;
  for (const int64_t width : matrix_widths(graph)) bytes += matrix_bytes(rows, width, dtype);
  return bytes;
}

std::optional<int64_t> KvCache::reserve(int64_t rows) {
  int64_t gap = 0;  // where the free rows before the next range begin
  for (const auto& [first, count] : used_) {
    if (first - gap >= rows) break;
    gap = first + count;
  }
  if (rows_ - gap < rows) return std::nullopt;
  used_[gap] = rows;
  return gap;
}

void KvCache::release(int64_t first_row) { used_.erase(first_row); }

TensorView KvCache::part(int matrix, int64_t first_row, int64_t rows) const {
  const auto m = static_cast<size_t>(matrix);
  return dense(arena_.at(offsets_[m]), dtype_, rows_, widths_[m]).slice_rows(first_row, rows);
}

}  // namespace lazytrain::eval
