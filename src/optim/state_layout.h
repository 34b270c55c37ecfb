// What a parameter costs in memory between steps and how a piece of optimizer state lies in its home. The one source
// for the planner, the memory table, checkpoints and the documentation.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace lazytrain::optim {

// How the two moments are kept.
enum class StateKind : uint8_t { kFp32 };

// The value of optimizer.state; anything unknown is a UsageError.
StateKind state_kind_from_name(std::string_view name);
std::string_view name_of(StateKind kind);

// Bytes of `parameters` parameters. hi is the streamed bf16 weight; lo and the moments only the optimizer reads.
struct StateBytes {
  int64_t hi = 0;
  int64_t lo = 0;
  int64_t moments = 0;

  int64_t optimizer() const { return lo + moments; }  // what state_layout describes, without the gaps of alignment
  int64_t total() const { return hi + lo + moments; }
};
StateBytes state_bytes(StateKind kind, int64_t parameters);

// fp32: 12 (2 hi + 2 lo + 4 m + 4 v).
double bytes_a_parameter(StateKind kind);

// Bytes of the two moments of `parameters` parameters under a value of optimizer.state, for planning: `fp32` 8 a
// parameter, `8bit` two codes and one fp32 scale each a block of 256, `hybrid:FRACTION` that share of them in 8-bit
// with blocks of 4096. Throws UsageError when it is none of these. (What can be trained with is
// state_kind_from_name's.)
int64_t planned_state_bytes(std::string_view state, int64_t parameters);

// One array of a state block.
struct StateSection {
  std::string_view name;  // "lo", "m", "v": also its name in a checkpoint
  DType dtype;
  int64_t elements;
  int64_t offset_bytes;  // from the start of the block, a multiple of kStateAlignment
  int64_t bytes() const { return elements * size_of(dtype); }
};

// The optimizer state of one range of parameters as one contiguous block, so that it moves between homes in one piece.
// A kind whose moments are not plain arrays adds its sections here; whoever moves or saves blocks walks the list.
struct StateLayout {
  StateKind kind;
  int64_t parameters;
  std::vector<StateSection> sections;
  int64_t bytes;  // of the block, a multiple of kStateAlignment

  // Throws RunError when this kind has no such section.
  const StateSection& section(std::string_view name) const;
};
inline constexpr int64_t kStateAlignment = 64;
StateLayout state_layout(StateKind kind, int64_t parameters);

// Which parameters decay: matrices (linear layers and the embedding), not vectors (norm weights and biases).
struct ParamGroupRule {
  double weight_decay = 0.0;

  static bool decays(int64_t dimensions) { return dimensions >= 2; }
  double weight_decay_of(int64_t dimensions) const { return decays(dimensions) ? weight_decay : 0.0; }
};

}  // namespace lazytrain::optim
