#include "optim/state_layout.h"

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
