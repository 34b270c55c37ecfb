// Whether a run should be planned again: what its steps take, beside what its plan was chosen for.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/graph.h"
#include "hw/profile.h"
#include "plan/measured.h"
#include "plan/program.h"
#include "plan/timeline.h"

namespace lazytrain::train {

struct ReplanLimits {
  int64_t warm_up = 2;          // steps under a plan before it is measured
  double deviation = 0.1;       // of exposed time from the predicted, as a share of the step, beyond which one counts
  int64_t deviating_steps = 5;  // of those measured, one after the other
  int64_t cool_down = 50;       // steps from one planning to the next
  double least_gain = 0.03;     // of the step, simulated with measured times, for which plans are changed
};

// Takes the timelines of a run's steps, one after the other: measures them, and says when to plan again.
class Calibration {
 public:
  explicit Calibration(const graph::Graph& graph, const ReplanLimits& limits = {});

  // From the next step on this program runs, which outlives its steps; it was chosen for `predicted_exposed_s`. Its
  // first steps warm up.
  void begin(const plan::Program& program, const hw::Profile& machine, double predicted_exposed_s);

  // What a step took. `whole`: it had an update and nothing else was done beside it; other steps are not measured and
  // only bring the next planning nearer. True when it is time to plan again.
  bool observe(const plan::Timeline& timeline, bool whole);

  // It is planned again now: not once more for a while.
  void planning();
  // The plan stays: this is what it is expected to do from now on.
  void expect(double exposed_s);

  const plan::Measurements& measurements() const { return measurements_; }
  // The program's step with the times that were measured.
  plan::Timeline simulate_measured() const;

  double predicted_exposed_s() const { return predicted_exposed_s_; }
  // Of the last measured step.
  double exposed_s() const { return exposed_s_; }
  double step_s() const { return step_s_; }

 private:
  const graph::Graph& graph_;
  ReplanLimits limits_;
  const plan::Program* program_ = nullptr;
  std::optional<plan::CostTable> analytic_;
  plan::Measurements measurements_;
  double predicted_exposed_s_ = 0, exposed_s_ = 0, step_s_ = 0;
  int64_t seen_ = 0;       // whole steps under this program
  int64_t deviating_ = 0;  // the last ones
  int64_t since_planning_;
};

// Whether a plan that takes `found_s` a step is worth a change from one that takes `present_s`, both simulated with the
// same times.
bool is_worth_a_change(double present_s, double found_s, const ReplanLimits& limits = {});

}  // namespace lazytrain::train
