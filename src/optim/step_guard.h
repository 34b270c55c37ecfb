// Skips the update of a step whose gradient is not finite, and gives up when it keeps happening.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "optim/grad_norm.h"

namespace lazytrain::optim {

// One for a run. In a step: observe() each piece of the gradient in the units' order, then admit() once.
class StepGuard {
 public:
  static constexpr int64_t kMostInARow = 3;

  // Part of a checkpoint: a resumed run counts on from here.
  struct Counts {
    int64_t skipped = 0;   // steps of the run so far
    int64_t in_a_row = 0;  // the last ones
  };

  StepGuard() = default;
  explicit StepGuard(Counts counts) : counts_(counts) {}

  // Adds a piece's sum to the step's. `where` names the unit and tensor for messages.
  void observe(const GradientSum& piece, std::string_view where);

  // Ends the step numbered `step`. True: the gradient is finite and the update may run. False: skip it. Throws RunError
  // at the third non-finite step in a row, naming the first piece that was not finite in this step.
  bool admit(int64_t step);

  // Of the step, until the next one's first observe(). culprit: the first piece that was not finite, "" when all were.
  const GradientSum& sum() const { return sum_; }
  const std::string& culprit() const { return culprit_; }
  const Counts& counts() const { return counts_; }

 private:
  void begin_if_ended();

  Counts counts_;
  GradientSum sum_;
  std::string culprit_;
  bool ended_ = false;
};

}  // namespace lazytrain::optim
