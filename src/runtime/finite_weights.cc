#include "runtime/finite_weights.h"

#include <fmt/format.h>

#include <cmath>
#include <type_traits>

namespace lazytrain::runtime {
namespace {

template <typename T>
int64_t count_not_finite(const TensorView& view) {
  int64_t count = 0;
  for (int64_t r = 0; r < view.rows; ++r) {
    const T* row = view.row<T>(r);
    for (int64_t c = 0; c < view.cols; ++c) {
      if constexpr (std::is_same_v<T, bf16>) {
        count += std::isfinite(to_float(row[c])) ? 0 : 1;
      } else {
        count += std::isfinite(row[c]) ? 0 : 1;
      }
    }
  }
  return count;
}

}  // namespace

std::string BrokenWeight::describe() const {
  return fmt::format("tensor '{}': {} of its {} values are not finite (NaN or infinite)", parameter->name, values,
                     parameter->elements);
}

std::optional<BrokenWeight> find_not_finite(const graph::Graph& graph,
                                            const std::function<TensorView(int unit, int parameter)>& weight) {
  for (size_t u = 0; u < graph.units.size(); ++u) {
    const auto& params = graph.units[u].params;
    for (size_t p = 0; p < params.size(); ++p) {
      if (params[p].tied) continue;
      const TensorView view = weight(static_cast<int>(u), static_cast<int>(p));
      const int64_t count = view.dtype == DType::kBF16 ? count_not_finite<bf16>(view) : count_not_finite<float>(view);
      if (count > 0) return BrokenWeight{&params[p], count};
    }
  }
  return std::nullopt;
}

}  // namespace lazytrain::runtime
