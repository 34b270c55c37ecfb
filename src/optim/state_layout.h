// What a parameter costs in memory between steps and how its optimizer state lies in a home. The one source for the
// planner, the memory table, checkpoints and the documentation.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace lazytrain::optim {

// How the two moments of a parameter are kept.
enum class StateKind : uint8_t { kFp32, k8Bit };
std::string_view name_of(StateKind kind);

// optimizer.state as a person writes it:
//   fp32
//   8bit[:BLOCK]      every matrix; BLOCK elements share a scale, a power of two from 64 to 4096, 256 by default
//   hybrid:FRACTION   whole matrices, the largest first, until that share of all parameters is in 8-bit, BLOCK 4096
// and after either of the last two
//   +embedding        the embedding too (it stays fp32 otherwise: most of its rows get no gradient in a step)
//   -head             not the head's own matrix (which is taken like any other)
// Vectors (norm weights, biases) and parameters of fewer than kSmallest8Bit elements are always fp32.
struct StateSetting {
  enum class Mode : uint8_t { kFp32, k8Bit, kHybrid };
  Mode mode = Mode::kFp32;
  int64_t block = 0;      // of the 8-bit parameters
  double fraction = 0.0;  // kHybrid
  bool embedding = false;
  bool head = true;
};
inline constexpr int64_t kSmallest8Bit = 4096;
inline constexpr int64_t kSmallestBlock = 64;
inline constexpr int64_t kLargestBlock = 4096;

// Throws UsageError that says what is expected.
StateSetting state_setting_from_name(std::string_view name);

// What decides the format of a parameter. A tied head has no state of its own: list it once, as the embedding.
enum class ParameterRole : uint8_t { kMatrix, kVector, kEmbedding, kHead };
struct StateParameter {
  int64_t elements = 0;
  ParameterRole role = ParameterRole::kMatrix;
};

// The format of one parameter's moments.
struct MomentFormat {
  StateKind kind = StateKind::kFp32;
  int64_t block = 0;  // elements that share their scales; 0 for fp32

  bool operator==(const MomentFormat&) const = default;
};

// For every parameter of a model, in the order given (hybrid looks at all of them; the first of equal sizes wins).
std::vector<MomentFormat> moment_formats(const StateSetting& setting, std::span<const StateParameter> model);

// One array of a parameter's moments. `name` is also its name in a checkpoint, behind the parameter's.
struct MomentArray {
  std::string_view name;
  DType dtype;
  int64_t elements;
  int64_t offset_bytes;  // from the start of the unit's state, a multiple of kMomentAlignment
  int64_t bytes() const { return elements * size_of(dtype); }
};
inline constexpr int64_t kMomentAlignment = 256;

// The moments of one parameter of n elements.
//   fp32: "m" and "v", fp32 [n] each
//   8bit: "m8" and "v8", codes [n] of one byte each, and "scales", fp32 [ceil(n / block)][2]: that of m, that of v
// All bytes 0 is the state before the first update.
struct MomentLayout {
  MomentFormat format;
  int64_t elements = 0;
  std::vector<MomentArray> arrays;

  // Throws RunError when this format has no such array.
  const MomentArray& array(std::string_view name) const;
  int64_t bytes() const;  // of the arrays, without the gaps of alignment
};

// The format of saved 8-bit moments from the number of their scales; none when no block size gives that number for a
// parameter of this size (every parameter that is kept in 8-bit has enough elements to tell block sizes apart).
std::optional<MomentFormat> format_of_scales(int64_t elements, int64_t scales);

// The moments of a unit as one contiguous range, so that they move between homes in one piece: parameter by parameter
// in the order given. For fp32 it is 8 bytes for each element of a block of parameters that start at multiples of 64.
struct UnitMoments {
  std::vector<MomentLayout> parameters;
  int64_t bytes = 0;  // a multiple of kMomentAlignment
};
UnitMoments unit_moments(std::span<const StateParameter> unit, std::span<const MomentFormat> formats);

// Bytes of the moments of n parameters that form one tensor, without the gaps of alignment.
int64_t moment_bytes(MomentFormat format, int64_t n);

// Bytes of weights and moments a parameter: 2 hi + 2 lo + the moments, what blocks share counted in part. fp32: 12,
// 8-bit with blocks of 256: 6.03.
double bytes_a_parameter(MomentFormat format);

// Bytes of the moments of `parameters` parameters under a value of optimizer.state, as if they were one matrix, for
// planning before the tensors are known: unit_moments says what they really take. Throws UsageError as
// state_setting_from_name.
int64_t planned_state_bytes(std::string_view state, int64_t parameters);

// Which parameters decay: matrices (linear layers and the embedding), not vectors (norm weights and biases).
struct ParamGroupRule {
  double weight_decay = 0.0;

  static bool decays(int64_t dimensions) { return dimensions >= 2; }
  double weight_decay_of(int64_t dimensions) const { return decays(dimensions) ? weight_decay : 0.0; }
};

}  // namespace lazytrain::optim
