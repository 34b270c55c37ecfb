#include "train/step_times.h"

#include <utility>

#include "base/median.h"

namespace lazytrain::train {

StepTimes::StepTimes() { newest_.reserve(kKept); }

void StepTimes::add(double seconds, const plan::LaneSummary& lanes) {
  if (++steps_ == 2) newest_.clear();
  seconds_ += seconds;
  if (newest_.size() < kKept) {
    newest_.push_back({seconds, lanes});
  } else {
    newest_[next_] = {seconds, lanes};
    next_ = (next_ + 1) % kKept;
  }
}

void StepTimes::plan_changed() {
  newest_.clear();
  next_ = 0;
}

double StepTimes::median_of(const std::function<double(const Step&)>& of) const {
  std::vector<double> values;
  for (const Step& step : newest_) values.push_back(of(step));
  return lazytrain::median(std::move(values));
}

double StepTimes::median_step_s() const {
  return median_of([](const Step& step) { return step.seconds; });
}

double StepTimes::median(const std::function<double(const plan::LaneSummary&)>& of) const {
  return median_of([&](const Step& step) { return of(step.lanes); });
}

}  // namespace lazytrain::train
