// What steps took, for the end of a run, in memory that does not grow with their number.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "plan/timeline.h"

namespace lazytrain::train {

class StepTimes {
 public:
  static constexpr size_t kKept = 1024;

  StepTimes();
  void add(double seconds, const plan::LaneSummary& lanes);
  // Steps from here on are another plan's: medians are of those.
  void plan_changed();

  int64_t steps() const { return steps_; }  // all of the run
  double seconds() const { return seconds_; }
  // Of the newest steps of the plan in force, at most kKept; 0 without any.
  double median_step_s() const;
  double median(const std::function<double(const plan::LaneSummary&)>& of) const;

 private:
  struct Step {
    double seconds = 0;
    plan::LaneSummary lanes;
  };
  double median_of(const std::function<double(const Step&)>& of) const;

  int64_t steps_ = 0;
  double seconds_ = 0;
  std::vector<Step> newest_;  // a ring
  size_t next_ = 0;
};

}  // namespace lazytrain::train
