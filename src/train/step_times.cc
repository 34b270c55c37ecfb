#include "train/step_times.h"

#include <algorithm>

namespace lazytrain::train {

StepTimes::StepTimes() { newest_.reserve(kKept); }

void StepTimes::add(double seconds, const plan::LaneSummary& lanes) {
  ++steps_;
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
  if (newest_.empty()) return 0;
  std::vector<double> values;
  for (const Step& step : newest_) values.push_back(of(step));
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double StepTimes::median_step_s() const {
  return median_of([](const Step& step) { return step.seconds; });
}

double StepTimes::median(const std::function<double(const plan::LaneSummary&)>& of) const {
  return median_of([&](const Step& step) { return of(step.lanes); });
}

}  // namespace lazytrain::train
