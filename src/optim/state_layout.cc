#include "optim/state_layout.h"

#include <cstdlib>
#include <string>

#include "base/arith.h"
#include "base/error.h"

namespace lazytrain::optim {

StateKind state_kind_from_name(std::string_view name) {
  if (name == "fp32") return StateKind::kFp32;
  throw UsageError("optimizer.state: '{}' is unknown; expected fp32", name);
}

std::string_view name_of(StateKind kind) {
  switch (kind) {
    case StateKind::kFp32:
      return "fp32";
  }
  return "?";
}

StateBytes state_bytes(StateKind kind, int64_t parameters) {
  StateBytes bytes{.hi = parameters * size_of(DType::kBF16), .lo = parameters * size_of(DType::kI16)};
  switch (kind) {
    case StateKind::kFp32:
      bytes.moments = 2 * parameters * size_of(DType::kF32);
      break;
  }
  return bytes;
}

double bytes_a_parameter(StateKind kind) {
  // Over many parameters, so that what a kind keeps per block of them is counted in part.
  constexpr int64_t kMany = int64_t{1} << 30;
  return static_cast<double>(state_bytes(kind, kMany).total()) / static_cast<double>(kMany);
}

int64_t planned_state_bytes(std::string_view state, int64_t parameters) {
  const auto in_8bit = [](int64_t count, int64_t block) { return 2 * (count + 4 * ((count + block - 1) / block)); };
  if (state == "fp32") return 8 * parameters;
  if (state == "8bit") return in_8bit(parameters, 256);
  constexpr std::string_view kHybrid = "hybrid:";
  if (state.starts_with(kHybrid)) {
    const std::string number(state.substr(kHybrid.size()));
    char* end = nullptr;
    const double fraction = std::strtod(number.c_str(), &end);
    if (!number.empty() && *end == '\0' && fraction >= 0 && fraction <= 1) {
      const auto small = static_cast<int64_t>(fraction * static_cast<double>(parameters));
      return in_8bit(small, 4096) + 8 * (parameters - small);
    }
  }
  throw UsageError("optimizer state '{}' is unknown; expected fp32, 8bit or hybrid:FRACTION with a fraction of 0 to 1",
                   state);
}

const StateSection& StateLayout::section(std::string_view name) const {
  for (const StateSection& s : sections) {
    if (s.name == name) return s;
  }
  throw RunError("optimizer state '{}' has no section '{}'", name_of(kind), name);
}

StateLayout state_layout(StateKind kind, int64_t parameters) {
  StateLayout layout{.kind = kind, .parameters = parameters, .sections = {}, .bytes = 0};
  const auto add = [&](std::string_view name, DType dtype, int64_t elements) {
    layout.sections.push_back({name, dtype, elements, layout.bytes});
    layout.bytes += align_up(elements * size_of(dtype), kStateAlignment);
  };
  add("lo", DType::kI16, parameters);
  switch (kind) {
    case StateKind::kFp32:
      add("m", DType::kF32, parameters);
      add("v", DType::kF32, parameters);
      break;
  }
  return layout;
}

}  // namespace lazytrain::optim
