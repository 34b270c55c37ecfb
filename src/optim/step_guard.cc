#include "optim/step_guard.h"

#include "base/error.h"

namespace lazytrain::optim {

void StepGuard::begin_if_ended() {
  if (!ended_) return;
  sum_ = {};
  culprit_.clear();
  ended_ = false;
}

void StepGuard::observe(const GradientSum& piece, std::string_view where) {
  begin_if_ended();
  if (!piece.finite && culprit_.empty()) culprit_ = where;
  sum_ += piece;
}

bool StepGuard::admit(int64_t step) {
  begin_if_ended();
  ended_ = true;
  if (sum_.finite) {
    counts_.in_a_row = 0;
    return true;
  }
  ++counts_.skipped;
  ++counts_.in_a_row;
  if (counts_.in_a_row >= kMostInARow) {
    throw RunError(
        "step {}: the gradient of {} is not finite; {} steps in a row had such a gradient ({} in this run); lower "
        "optimizer.lr, lengthen optimizer.warmup, set optimizer.clip, or look at the samples of these steps",
        step, culprit_, counts_.in_a_row, counts_.skipped);
  }
  return false;
}

}  // namespace lazytrain::optim
