// The planning problem as a mixed-integer program: the formulation that docs/planning.md explains, row by row.
#pragma once

#include <utility>
#include <vector>

#include "plan/mip/instance.h"
#include "plan/mip/mip.h"
#include "plan/mip/window_plan.h"

namespace lazytrain::plan {

// Columns of the program; -1 where a variable does not exist because it could only be 0.
struct WindowColumns {
  struct Unit {
    std::vector<int> edges;                          // x by length - 1, of blocks that begin here
    int on_device = -1, on_host = -1, on_disk = -1;  // g, c, n of the unit's input boundary
    std::vector<std::vector<int>> retained;          // y by entry and home; entry 0 has home 0 only
    int keep = -1, device_home = -1;                 // k, v
    int state_on_disk = -1, weights_on_disk = -1;    // t, q
    int early_update = -1;                           // b: seconds of the update done during backward
    int disk_refetch = -1;                           // weights read from disk for backward
    int forward = -1, backward = -1;                 // Wf, Wb
  };
  std::vector<Unit> units;
  std::vector<int> drain, back, disk_write, disk_read, start;  // D, H, Q, R, s: L + 1
  std::vector<std::vector<std::pair<int, int>>> disk_stream;   // by unit whose window it is: (unit read, column)
  int head = -1;                                               // Wh
};

struct WindowProblem {
  Mip mip;
  WindowColumns columns;
  std::vector<std::pair<int, int>> totals;  // columns that follow from others, each with the row that says how
  double max_ties = 0;                      // the tie-breaking terms of the objective add at most this much

  // Values of all columns for a sound plan; what a solution's binaries say; the plan that a solution is.
  std::vector<double> values_of(const WindowPlan& plan) const;
  WindowChoices choices_of(const std::vector<double>& values) const;
  WindowPlan plan_of(const std::vector<double>& values) const;

 private:
  void fill_totals(std::vector<double>& values) const;
};

// Throws InputError when the program would not fit in memory: too many units, retained sets or too long blocks at once.
WindowProblem build_problem(const Instance& instance);

}  // namespace lazytrain::plan
