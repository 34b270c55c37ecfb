// An instance of the planning problem: what a step costs and what each tier may hold, unit by unit. Seconds and GB (1e9
// bytes) throughout, so that coefficients stay between 1e-3 and 1e3.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace lazytrain::plan {

// One retained set of a unit: what is kept from forward and what backward then still recomputes.
struct MenuEntry {
  std::vector<std::string> retained;
  double retained_gb = 0;
  double recompute_s = 0;
  double workspace_gb = 0;  // of the unit's backward
  friend bool operator==(const MenuEntry&, const MenuEntry&) = default;
};

struct HeadCosts {
  double compute_s = 0;
  double weight_gb = 0;
  double grad_gb = 0;
  friend bool operator==(const HeadCosts&, const HeadCosts&) = default;
};

struct LinkRates {  // GB/s; joint: h2d and d2h at once, their sum
  double h2d = 0;
  double d2h = 0;
  double joint = 0;
  double disk_read = 0;
  double disk_write = 0;
  friend bool operator==(const LinkRates&, const LinkRates&) = default;
};

struct TierGb {
  double device = 0;
  double host = 0;
  double disk = 0;
  friend bool operator==(const TierGb&, const TierGb&) = default;
};

// How somebody else solved this instance; only tests look at it.
struct ReferenceSolution {
  std::string solver;
  std::string status;
  double step_s = 0;
  double gap = 0;
  double seconds_2_cores = 0;
  friend bool operator==(const ReferenceSolution&, const ReferenceSolution&) = default;
};

// Pieces of state that are in host memory at once on their way from disk, through their update, and back: a piece is
// read when the third before it is written.
inline constexpr size_t kStagedPieces = 3;

// Members bear the names of their JSON keys; vectors have one entry a unit. Boundary i is the input of unit i.
struct Instance {
  std::string name;
  int units = 0;
  std::vector<double> forward_s;
  std::vector<double> backward_s;            // backward alone, without recompute
  std::vector<double> boundary_gb;           // A
  std::vector<double> weight_gb;             // P: what is streamed to the device
  std::vector<double> grad_gb;               // G: what leaves the device
  std::vector<double> update_s;              // U: on the host, optimizer state in host memory
  std::vector<double> device_home_gb;        // Y: weights, gradient and optimizer state, all on the device
  std::vector<double> device_update_s;       // E: update of a unit at home on the device
  std::vector<std::vector<MenuEntry>> menu;  // entry 0 retains nothing
  std::vector<double> forward_workspace_gb;
  HeadCosts head;
  LinkRates links_gbs;
  TierGb budget_gb;  // what is left after static buffers
  int max_block = 1;
  double gap = 0;
  std::optional<ReferenceSolution> reference;

  // Extensions. Left out (empty, false, true, 0) they leave the problem as it is without them.

  // (a) Homes on disk. Given both or none. A unit's optimizer state (host_state_gb) and, then, its master weights
  // (host_weight_gb) are in host memory unless the unit is at home on the device or they are at home on disk;
  // budget_gb.host and .disk are then gross of them. What is on disk is read into host memory for the unit's update and
  // written back behind it; weights at home on disk are read (P, disk_read) once more in each window of backward that
  // brings them to the device. disk_weights: whether weights may be on disk at all.
  std::vector<double> host_state_gb;
  std::vector<double> host_weight_gb;
  bool disk_weights = true;
  int state_pieces = 1;  // that a unit's state on disk is cut into, read, updated and written one after the other
  // Whether boundaries and retained sets may be on disk.
  bool disk_activations = true;
  // (b) A unit's update may begin as soon as its gradient is in host memory (no clipping barrier): forward waits only
  // for what backward has not hidden.
  bool update_in_backward = false;
  // What storing a unit's gradient takes of the same lane first. Empty: nothing.
  std::vector<double> accumulate_s;
  // (c) false: forward begins when all updates are done.
  bool chase = true;
  // (d) The embedding's update ends before unit 0's begins, the head's before the head window begins.
  double embedding_update_s = 0;
  double head_update_s = 0;
  // (e) A retained set leaves the device from the window behind its unit's on, not from that window on.
  bool sets_leave_behind = false;
  // (f) What stands before the first window besides its update and weights, and behind the last one: rows that come
  // from the host, their gradient that goes back.
  double lead_s = 0;
  double tail_s = 0;
  // (g) What host memory holds beside the state when everything that left the device is back and nothing is staged:
  // the gradient of the embedding, which is last.
  double host_end_gb = 0;

  bool has_disk_homes() const { return !host_state_gb.empty(); }
  // Of the largest unit's state on disk: what is in host memory at once.
  double staged_share() const { return static_cast<double>(kStagedPieces) / state_pieces; }
  // Whether reading the last pieces of a unit waits for the first ones to be written.
  bool is_cut_up() const { return static_cast<size_t>(state_pieces) > kStagedPieces; }
  // What of backward window u - 2 storing unit u's gradient takes from updates: never more than its compute.
  double stored_in_backward_s(size_t u) const;
  double staged_s() const;  // what a link needs at most for the pieces in host memory
  bool offers_disk() const { return budget_gb.disk > 0 && disk_activations; }  // to boundaries and retained sets
  // Sum of forward, backward, head and (f): everything hidden, nothing recomputed. No plan is faster.
  double bound_s() const;
  friend bool operator==(const Instance&, const Instance&) = default;
};

// Throws InputError naming the key: lengths, negative or non-finite numbers, zero rates of links that are needed, a
// menu whose entry 0 retains something, more than 4096 units or 64 menu entries.
Instance instance_from_json(const Json& json, const std::string& where);
Json to_json(const Instance& instance);
// The checks above for an instance made in memory; `where` names it in the message.
void check_instance(const Instance& instance, const std::string& where);

}  // namespace lazytrain::plan
