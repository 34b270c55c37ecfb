// From the logits of a position to the next token.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.h"

namespace lazytrain::eval {

// Logits that are no numbers.
struct NotFinite : RunError {
  using RunError::RunError;
};

// Draws are a function of (seed, stream, position) alone: `stream` is the sequence's number among the prompts,
// `position` that of the new token in it, so neither batching nor other sequences change what is drawn.
struct Sampler {
  double temperature = 0;  // 0: the largest logit, the first of equal ones
  uint64_t seed = 0;

  // temperature > 0: id i with probability exp(l_i / temperature) / sum. Throws NotFinite when the largest logit is not
  // finite or one is no number: the weights are broken.
  int32_t next(std::span<const float> logits, uint64_t stream, uint64_t position) const;
};

}  // namespace lazytrain::eval
