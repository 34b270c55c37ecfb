#include "train/replan.h"

#include <cmath>

namespace lazytrain::train {

Calibration::Calibration(const graph::Graph& graph, const ReplanLimits& limits)
    : graph_(graph), limits_(limits), since_planning_(limits.cool_down) {}

void Calibration::begin(const plan::Program& program, const hw::Profile& machine, double predicted_exposed_s) {
  program_ = &program;
  analytic_.emplace(graph_, program, machine);
  predicted_exposed_s_ = predicted_exposed_s;
  seen_ = deviating_ = 0;
}

bool Calibration::observe(const plan::Timeline& timeline, bool whole) {
  ++since_planning_;
  if (!whole || ++seen_ <= limits_.warm_up) return false;
  measurements_.add(graph_, *program_, *analytic_, timeline);
  step_s_ = timeline.step_s;
  exposed_s_ = plan::summarize(*program_, timeline).exposed_s;
  const bool deviates = std::abs(exposed_s_ - predicted_exposed_s_) > limits_.deviation * step_s_;
  deviating_ = deviates ? deviating_ + 1 : 0;
  return deviating_ >= limits_.deviating_steps && since_planning_ >= limits_.cool_down;
}

void Calibration::planning() { since_planning_ = deviating_ = 0; }

void Calibration::expect(double exposed_s) {
  predicted_exposed_s_ = exposed_s;
  deviating_ = 0;
}

plan::Timeline Calibration::simulate_measured() const {
  return plan::simulate(*program_, plan::CostTable::measured(graph_, *program_, *analytic_, measurements_));
}

bool is_worth_a_change(double present_s, double found_s, const ReplanLimits& limits) {
  return found_s < (1 - limits.least_gain) * present_s;
}

}  // namespace lazytrain::train
