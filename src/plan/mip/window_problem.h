// The planning problem as a mixed-integer program. One steady-state step at the granularity of windows: the time of a
// unit's forward, of its backward, and of the head. With units u = 0..L-1, boundary i the input of unit i:
//
// Binary: x_se, blocks [s, e) of at most max_block units that form a path 0 -> L; g_i, c_i, n_i, boundary i at home on
// device, host, disk (z_i = g_i + c_i + n_i: the path visits i); y_uoh, retained set o of unit u at home h, one a unit;
// k_u weights stay from forward to backward; v_u unit at home on the device; t_u, q_u optimizer state, weights on disk.
// Continuous: D, H, Q, R, traffic of boundaries and retained sets by window (to the host and back, to disk and back);
// windows Wf_u, Wb_u, Wh; forward starts s_0..s_L. Bytes are interchangeable and the windows that an item may use are
// nested, so sums by window are exact.
//
// Where it could be read in two ways:
// - A block's backward begins with its last unit: that window runs forward of units s..e-2 again and streams their
//   weights, kept or not; those of e-2, whose backward is next, are counted once, as the weights of the next backward.
// - The head's window brings the weights of unit L-1 for its backward.
// Extensions (instance.h):
// (a) host + sum host_state (1 - t - v) + host_weight (1 - q - v) + staged <= host; the complement is on disk; q <= t,
//     t + v <= 1. S_u = host_state t_u + host_weight q_u passes through the host for the update, read and written back
//     by lanes of their own in p pieces (state_pieces), three at a time: staged >= 3/p S_u. Ends of reading, update,
//     writing, with own_u = update_u (1 - v_u):
//       r_u >= r_{u-1} + S_u / read      e_u >= e_{u-1} + own_u      w_u >= w_{u-1} + (S_u + Q_{u-1}) / write
//     (Q with chase only), and for p <= 3
//       r_u >= w_{u-3} + S_u / read      e_u >= r_u + own_u          w_u >= e_u + S_u / write
//     For more, the first piece is written before the fourth is read, the last is read when the third before it is
//     written, and both only bind where there are pieces (D: the time in which a link moves three of the largest):
//       e_u >= r_u + t_u update_u / p    w_u >= e_u + S_u / (p write)
//       r_u >= e_{u-1} + (t_u update_u + S_u / write) / p + (1 - 3/p) S_u / read - D (1 - t_u)
//       r_u >= w_{u-1} + (1 - 3/p) S_u / write + S_u / (p read) - D (1 - t_u)
//     Of whole choices it follows that a unit in host memory stalls the disk (cuts, with h_u = 1 - v_u - t_u):
//       e_u >= e_{u-1} + update_u h_u + (2 t_u update_u + S_u / write) / p + (1 - 3/p) S_u / read
//       w_u >= w_{u-1} + S_u / write + (update_u - what writing is behind the update at most) h_u
//     Without disk homes only e is left. P_u q_u is read from disk in each window of backward that brings P_u. That is
//     a product of binaries: read again p_u >= q_u - k_u, and for unit j in a block that ends with window u,
//     r_uj >= q_j + (sum of those x) - 1.
// (b) b_u >= 0: the seconds of unit u's update that are done during backward. Gradient u is in host memory when window
//     u-1 ends, so updates of units 0..u have windows u-2..0 left: sum_{j<=u} b_j <= sum_{w<=u-2} Wb_w for each u, and
//     b_u <= update_u (1 - v_u - t_u): what is on disk waits for forward. Storing a gradient comes first on the same
//     lane: of Wb_w, min(accumulate_{w+2}, B_w) is taken off. These intervals are nested, hence the sums are exact for
//     updates that are done in pieces. Forward then waits for the rest of them. With chase = false it is
//     the order L-1..0 without any pieces.
// (c) chase = false: s_0 >= all updates (less what backward hid) + P_0 / h2d, and no such row for the other units.
// (d) embedding_update_s stands before every prefix of updates; s_L >= all of them + head_update_s + head weights /
// h2d.
// (e) sets_leave_behind: sum_{w<=k} D_w <= sum_{i<=k} O_i less the retained sets of unit k, and so for Q.
// (f) s_0 >= ... + lead_s; tail_s is added to the step.
// (g) host + sum host_state (1 - t - v) + host_weight (1 - q - v) + host_end_gb <= host, without what left the device.
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
  int tail = -1;                                               // tail_s
};

struct WindowProblem {
  Mip mip;
  WindowColumns columns;
  std::vector<std::pair<int, int>> totals;  // columns that follow from others, each with the row that says how
  std::vector<std::pair<int, std::vector<int>>> chained;  // columns as small as their rows allow, in order
  double max_ties = 0;  // the tie-breaking terms of the objective add at most this much

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
