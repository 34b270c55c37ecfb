// What a set of choices costs: windows, traffic and the step they make, without a solver.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "plan/mip/instance.h"
#include "plan/mip/window_plan.h"

namespace lazytrain::plan {

// By how much choices break the budgets, GB; all 0: they fit.
struct Excess {
  double device = 0;
  double host = 0;
  double disk = 0;
  double total() const { return device + host + disk; }
};

// Takes an instance apart once and then prices choices in a few microseconds a hundred units. Traffic leaves as soon as
// it can and comes back as late as it can, which takes the least memory; a window is stretched only where memory asks
// for it, or where the last of the traffic remains (then the head's). That is the best there is but for windows whose
// stretching gives unequal bandwidth, where it may be some thousandths above. Not for several threads at once.
class Evaluator {
 public:
  explicit Evaluator(const Instance& instance);

  // Infinite when the choices do not fit the budgets or name what does not exist.
  double step_s(const WindowChoices& choices);
  // The whole plan; empty when it does not fit.
  std::optional<WindowPlan> plan(const WindowChoices& choices);
  Excess excess(const WindowChoices& choices);

 private:
  // A pass over the windows in which traffic moves one way: forward in time order, backward from its end.
  struct Pass {
    std::vector<double> length;    // of each window, L
    std::vector<double> own;       // GB that the lane must move in the window besides
    std::vector<double> other;     // GB that the opposite lane moves
    std::vector<double> released;  // GB that may move from this window on
    std::vector<double> before;    // GB that must have moved before this window
    std::vector<double> moved;
    double left = 0;  // for the head's window
  };

  void lay_out(const WindowChoices& choices);
  void lay_out_forward(const WindowChoices& choices);
  void lay_out_backward(const WindowChoices& choices);
  void lay_out_updates(const WindowChoices& choices);
  void update(const WindowChoices& choices, size_t u);
  double read_end(const WindowChoices& choices, size_t u, double updated_before) const;
  double earliest(const WindowChoices& choices, size_t u) const;
  void write_disk(size_t u);
  double most_on_host() const {
    return state_gb_ + std::max(host_gb_ + in_.staged_share() * most_staged_gb_, in_.host_end_gb);
  }
  bool move(Pass& pass, double rate, const WindowChoices* forward);
  void read_disk();
  bool run(const WindowChoices& choices);
  const MenuEntry& entry(const WindowChoices& choices, size_t u) const;

  const Instance& in_;
  size_t units_;
  double staged_s_ = 0;
  Pass forward_, backward_;
  std::vector<double> out_, to_disk_, set_out_, set_to_disk_, block_s_, block_in_, block_read_, block_gb_;
  std::vector<double> backward_read_, early_, start_, write_, read_;
  std::vector<double> staged_, read_end_, update_end_, write_end_;  // of the updates, by unit
  double homes_gb_ = 0, host_gb_ = 0, state_gb_ = 0, most_staged_gb_ = 0, disk_gb_ = 0, head_in_ = 0, head_read_ = 0,
         head_s_ = 0;
  double head_write_left_ = 0, head_read_left_ = 0, step_s_ = 0;
};

}  // namespace lazytrain::plan
