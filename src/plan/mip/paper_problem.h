// The planning problem as arXiv 2608.11919 publishes it, for reproduction. Boundaries i = 0..L, boundary i the output
// of layer i (0: the input of the first), window w in 0..L-1.
//
// Binary: x_se, blocks (s, e] of at most max_block layers that form a path 0 -> L; g_i, c_i, n_i, a materialised
// boundary in device memory, host memory, on disk; z_i = g_i + c_i + n_i, the path visits i; g_0 = g_L = 1.
// Continuous, per boundary and window w >= i: d_iw, h_iw (device to host and back), q_iw, r_iw (host to disk and back);
// per window the slacks eD, eH, eW, eR.
//   sum A g <= device, sum A c <= host, sum A n <= disk
//   sum_w d_iw = sum_w h_iw = A_i (c_i + n_i), sum_w q_iw = sum_w r_iw = A_i n_i
//   sum_i d_iw + G_w <= CD_w + eD_w, sum_i h_iw + P_w <= CH_w + eH_w, sum_i q_iw <= CW_w + eW_w, r likewise, where the
//   capacities C are the length of a window (out_ of forward for d and q, back_ of backward for h and r) times the
//   link's rate
//   min sum R_se x_se + lz sum z + ln sum n + (eD - eD0 + eH - eH0 + eW + eR over their links' rates), with
//   R_se = rho_s + ... + rho_{e-2} and eD0 = max(0, G - CD), eH0 = max(0, P - CH): what G and P alone expose is not
//   charged.
// As published the program knows no time order of disk writes behind copies out, no memory of blocks that are being
// recomputed and none of boundaries in flight (window_problem.h does).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "plan/mip/instance.h"
#include "plan/mip/mip.h"
#include "plan/mip/solve.h"
#include "plan/words.h"

namespace lazytrain::plan {

// The restricted form: the path and the boundaries on the device are given, host or disk remains.
struct PaperFixed {
  std::vector<int> checkpoints;  // ascending, from 0 to L
  std::vector<int> device;       // ascending, of them, 0 and L among them
  friend bool operator==(const PaperFixed&, const PaperFixed&) = default;
};

// Members bear the names of their JSON keys. Milliseconds and GB (1e9 bytes), GB/s.
struct PaperInstance {
  std::string name;
  int layers = 0;                      // L
  std::vector<double> boundary_gb;     // A, L + 1
  std::vector<double> recompute_ms;    // rho, L
  std::vector<double> out_window_ms;   // L: in which boundaries leave
  std::vector<double> back_window_ms;  // L: in which they come back
  std::vector<double> gradient_gb;     // G, L: what windows must bring to the host besides
  std::vector<double> parameter_gb;    // P, L: what they must bring to the device
  LinkRates links_gbs;                 // joint: not in this problem
  TierGb budget_gb;
  int max_block = 8;
  double checkpoint_price = 1e-5;  // lz
  double disk_price = 1e-3;        // ln
  double gap = 0;
  std::optional<PaperFixed> fixed;
  friend bool operator==(const PaperInstance&, const PaperInstance&) = default;
};

inline constexpr int kMaxPaperLayers = 256;  // the program has 4 columns a boundary and window

// Throws InputError naming the key: lengths, negative or non-finite numbers, links without a rate, more layers than
// kMaxPaperLayers, a restriction that is no path or breaks max_block. In the file a
// number stands for a list of equal ones.
PaperInstance paper_instance_from_json(const Json& json, const std::string& where);
Json to_json(const PaperInstance& instance);
void check_paper_instance(const PaperInstance& instance, const std::string& where);
// True of a file that says `formulation: "paper"`.
bool is_paper_instance(const Json& json);

struct PaperMove {
  int boundary = 0;
  int window = 0;
  double gb = 0;
};
enum class PaperLane : uint8_t { kOut, kBack, kDiskWrite, kDiskRead };  // d, h, q, r
inline constexpr int kPaperLanes = 4;

struct PaperPlan {
  std::vector<std::optional<Tier>> homes;                     // L + 1; empty: recomputed
  std::array<std::vector<PaperMove>, kPaperLanes> transfers;  // by PaperLane
  double recompute_ms = 0;
  double exposed_ms = 0;  // beyond what the mandatory traffic exposes
  double objective = 0;

  int count(std::optional<Tier> home) const;
};

// The best traffic for given homes, by arithmetic: windows are nested, so the boundary with the fewest windows goes
// first, and what finds no room is exposed whatever the others do.
PaperPlan price_paper_plan(const PaperInstance& instance, const std::vector<std::optional<Tier>>& homes);

// What the mandatory traffic alone exposes: eD0 and eH0 over their links' rates.
double mandatory_exposed_ms(const PaperInstance& instance);

struct PaperSolution {
  WindowStatus status = WindowStatus::kInfeasible;
  std::optional<PaperPlan> plan;  // empty when infeasible
  double bound = 0;               // no plan has a smaller objective
  double gap = 0;                 // (objective - bound) / objective
  std::string solver;
  double solve_s = 0;
  std::string words;  // the solver's own, for the log
};

// Throws UsageError for a solver that is not there or not known. Starts from the densest even spacing that fits, which
// is also the answer of `greedy` and at a time limit of 0; without one only a solver can say whether anything fits.
PaperSolution solve_paper(const PaperInstance& instance, const SolveOptions& options);

// The mathematical program, and the values of its columns for a plan.
struct PaperProblem {
  Mip mip;
  std::vector<std::vector<int>> edges;                             // x by s and length - 1
  std::vector<std::array<int, 3>> homes;                           // g, c, n
  std::vector<std::array<int, kPaperLanes>> slack;                 // eD, eH, eW, eR by window
  std::array<std::vector<std::vector<int>>, kPaperLanes> traffic;  // [lane][i][w - i]; empty for 0 and L

  std::vector<double> values_of(const PaperInstance& instance, const PaperPlan& plan) const;
  std::vector<std::optional<Tier>> homes_of(const std::vector<double>& values) const;
};
PaperProblem build_paper_problem(const PaperInstance& instance);

// {objective, recompute_ms, exposed_ms, mandatory_exposed_ms, boundaries: [home or null], transfers}
Json to_json(const PaperInstance& instance, const PaperPlan& plan);
// A tile a boundary and the counts: several lines, ends with a newline.
std::string describe(const PaperInstance& instance, const PaperPlan& plan);

}  // namespace lazytrain::plan
