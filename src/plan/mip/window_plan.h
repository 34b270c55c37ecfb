// A solution of the planning problem in plain terms, with a checker that shares nothing with the solvers.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "plan/mip/instance.h"
#include "plan/words.h"

namespace lazytrain::plan {

struct UnitChoice {
  int menu = 0;                        // index of the retained set
  Tier retained_home = Tier::kDevice;  // of the retained set; kDevice for entry 0
  bool keep_weights = false;           // k: weights stay on the device from forward to backward
  bool device_home = false;            // v: weights, gradient and optimizer state live on the device
  bool state_on_disk = false;          // t: optimizer state at home on disk
  bool weights_on_disk = false;        // q: master weights and gradient at home on disk too
  friend bool operator==(const UnitChoice&, const UnitChoice&) = default;
};

// Everything that is decided; the rest of a plan follows from it.
struct WindowChoices {
  std::vector<std::optional<Tier>> boundaries;  // home of boundary i, the input of unit i; empty: recomputed. 0 has one
  std::vector<UnitChoice> units;
  friend bool operator==(const WindowChoices&, const WindowChoices&) = default;
};

// Windows: unit u's forward is window u of the forward pass, the head's is window L, unit u's backward is window u of
// the backward pass. Vectors of traffic have L + 1 entries, the last for the head's window. GB and seconds.
struct WindowPlan {
  WindowChoices choices;
  std::vector<double> forward_s;       // Wf, L
  std::vector<double> backward_s;      // Wb, L
  double head_s = 0;                   // Wh
  std::vector<double> start_s;         // s_0..s_L: when forward of a unit starts, the head's last
  std::vector<double> drain_gb;        // D: boundaries and retained sets, device to host, in forward
  std::vector<double> return_gb;       // H: back, in backward
  std::vector<double> disk_write_gb;   // Q: of these to disk, in forward
  std::vector<double> disk_read_gb;    // R: back, in backward
  std::vector<double> early_update_s;  // by unit: how much of its update is done during backward (update_in_backward)
  double step_s = 0;                   // s_L + head_s + sum of backward_s + tail_s
};

// The blocks [s, e): the units between two materialised boundaries, ascending.
std::vector<std::pair<int, int>> edges_of(const WindowChoices& choices);

// {step_s, edges, boundaries: [home or null], units: [{retained, home, keep_weights, ...}], windows...}
Json to_json(const Instance& instance, const WindowPlan& plan);

// Everything in which the plan breaks the problem as it is written down, in words; none for a sound plan. `tolerance`
// is relative to each row's largest term.
std::vector<std::string> check(const Instance& instance, const WindowPlan& plan, double tolerance = 1e-6);

// A tile a boundary, a letter a unit: for people. Several lines, ends with a newline.
std::string describe(const Instance& instance, const WindowPlan& plan);

}  // namespace lazytrain::plan
