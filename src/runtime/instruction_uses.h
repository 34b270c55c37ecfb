// Look-ups in instructions that every device makes.
#pragma once

#include <algorithm>

#include "plan/program.h"

namespace lazytrain::runtime {

// The use of that role, null when the instruction has none.
inline const plan::Use* use_of(const plan::Instruction& instruction, plan::Role role) {
  const auto it = std::find_if(instruction.uses.begin(), instruction.uses.end(),
                               [&](const plan::Use& use) { return use.role == role; });
  return it == instruction.uses.end() ? nullptr : &*it;
}

// Whether a move rounds fp32 sums to the bf16 of their store.
inline bool rounds_gradient(const plan::Program& program, const plan::Buffer& source, const plan::Buffer& target) {
  return source.purpose == plan::Purpose::kGradientAccumulators && target.purpose == plan::Purpose::kGradients &&
         program.gradient == DType::kBF16;
}

}  // namespace lazytrain::runtime
