#include "runtime/finite_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
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

// The first parameter of the graph of which count(unit, parameter), the number of its broken values, is not 0.
template <typename Count>
std::optional<BrokenWeight> first_broken(const graph::Graph& graph, const Count& count) {
  for (size_t u = 0; u < graph.units.size(); ++u) {
    const auto& params = graph.units[u].params;
    for (size_t p = 0; p < params.size(); ++p) {
      if (params[p].tied) continue;
      const int64_t broken = count(static_cast<int>(u), static_cast<int>(p));
      if (broken > 0) return BrokenWeight{&params[p], broken};
    }
  }
  return std::nullopt;
}

}  // namespace

std::string BrokenWeight::describe() const {
  return fmt::format("tensor '{}': {} of its {} values are not finite (NaN or infinite)", parameter->name, values,
                     parameter->elements);
}

std::optional<BrokenWeight> find_not_finite(const graph::Graph& graph,
                                            const std::function<TensorView(int unit, int parameter)>& weight) {
  return first_broken(graph, [&](int unit, int parameter) {
    const TensorView view = weight(unit, parameter);
    return view.dtype == DType::kBF16 ? count_not_finite<bf16>(view) : count_not_finite<float>(view);
  });
}

std::optional<BrokenWeight> find_not_finite(const ModelState& state) {
  return first_broken(state.graph(), [&](int unit, int parameter) {
    int64_t count = 0;
    state.visit(unit, parameter, StateArray::kHi, [&](std::span<const std::byte> bytes) {
      const auto* values = reinterpret_cast<const bf16*>(bytes.data());
      count += std::count_if(values, values + bytes.size() / sizeof(bf16),
                             [](bf16 value) { return !std::isfinite(to_float(value)); });
    });
    return count;
  });
}

}  // namespace lazytrain::runtime
