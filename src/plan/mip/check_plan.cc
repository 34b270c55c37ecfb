// The checker of plans: planner's constraints read once more, one by one, from the quantities of a plan.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/mip/window_plan.h"

namespace lazytrain::plan {
namespace {

class Checker {
 public:
  Checker(const Instance& instance, const WindowPlan& plan, double tolerance)
      : in_(instance), plan_(plan), units_(static_cast<size_t>(instance.units)), tolerance_(tolerance) {}

  std::vector<std::string> faults() {
    if (!shapes() || !choices()) return faults_;
    outgoing();
    moved("drain", plan_.drain_gb, plan_.return_gb, out_, set_out_);
    moved("disk write", plan_.disk_write_gb, plan_.disk_read_gb, to_disk_, set_to_disk_);
    starts();
    for (size_t u = 0; u < units_; ++u) forward(u);
    for (size_t u = 0; u < units_; ++u) backward(u);
    head();
    budgets();
    step();
    return faults_;
  }

 private:
  // `small` may not exceed `large`; both are sums of numbers of about `scale`.
  void at_most(const std::string& what, size_t index, double small, double large, double scale = 0) {
    const double slack = tolerance_ * std::max({1e-3, std::abs(small), std::abs(large), scale});
    if (!(small <= large + slack)) faults_.push_back(fmt::format("{} {}: {} exceeds {}", what, index, small, large));
  }
  void fault(const std::string& what, size_t index) { faults_.push_back(fmt::format("{} {}", what, index)); }

  bool shapes() {
    const auto sized = [&](const char* name, const std::vector<double>& v, size_t size) {
      if (v.size() != size) return faults_.push_back(fmt::format("{} has {} entries", name, v.size()));
      for (size_t i = 0; i < size; ++i) {
        if (!(std::isfinite(v[i]) && v[i] >= -1e-9)) fault(fmt::format("{} is negative or no number at", name), i);
      }
    };
    sized("forward_s", plan_.forward_s, units_);
    sized("backward_s", plan_.backward_s, units_);
    sized("start_s", plan_.start_s, units_ + 1);
    sized("drain_gb", plan_.drain_gb, units_ + 1);
    sized("return_gb", plan_.return_gb, units_ + 1);
    sized("disk_write_gb", plan_.disk_write_gb, units_ + 1);
    sized("disk_read_gb", plan_.disk_read_gb, units_ + 1);
    sized("early_update_s", plan_.early_update_s, units_);
    if (plan_.choices.boundaries.size() != units_ || plan_.choices.units.size() != units_)
      fault("choices of units", units_);
    return faults_.empty();
  }

  bool choices() {
    if (!plan_.choices.boundaries[0]) fault("no home for boundary", 0);
    for (size_t i = 0, last = 0; i <= units_; ++i) {
      if (i < units_ && !plan_.choices.boundaries[i]) continue;
      if (i - last > static_cast<size_t>(in_.max_block)) fault("too long a block before", i);
      last = i;
    }
    for (size_t u = 0; u < units_; ++u) {
      const UnitChoice& c = choice(u);
      if (c.menu < 0 || static_cast<size_t>(c.menu) >= in_.menu[u].size()) fault("no such retained set: unit", u);
      if (!in_.disk_activations && (at(u, Tier::kDisk) || c.retained_home == Tier::kDisk)) fault("on disk: unit", u);
      if (c.menu == 0 && c.retained_home != Tier::kDevice) fault("a home for nothing: unit", u);
      if (c.keep_weights && c.device_home) fault("kept and at home: unit", u);
      if (c.state_on_disk && (c.device_home || !in_.has_disk_homes())) fault("state on disk: unit", u);
      if (c.weights_on_disk && !c.state_on_disk) fault("weights on disk without the state: unit", u);
      if (c.weights_on_disk && !in_.disk_weights) fault("weights on disk: unit", u);
    }
    return faults_.empty();
  }

  const UnitChoice& choice(size_t u) const { return plan_.choices.units[u]; }
  const MenuEntry& entry(size_t u) const { return in_.menu[u][static_cast<size_t>(choice(u).menu)]; }
  bool at(size_t i, Tier tier) const { return plan_.choices.boundaries[i] == tier; }
  double away(size_t u) const { return choice(u).device_home ? 0 : 1; }
  // The block of unit u: its first unit.
  size_t block_begin(size_t u) const {
    while (!plan_.choices.boundaries[u]) --u;
    return u;
  }
  bool ends_block(size_t u) const { return u + 1 == units_ || plan_.choices.boundaries[u + 1].has_value(); }

  void outgoing() {
    for (size_t u = 0; u < units_; ++u) {
      const double disk = (at(u, Tier::kDisk) ? in_.boundary_gb[u] : 0) +
                          (choice(u).retained_home == Tier::kDisk ? entry(u).retained_gb : 0);
      const double host = (at(u, Tier::kHost) ? in_.boundary_gb[u] : 0) +
                          (choice(u).retained_home == Tier::kHost ? entry(u).retained_gb : 0);
      out_.push_back(host + disk);
      to_disk_.push_back(disk);
      set_out_.push_back(choice(u).retained_home == Tier::kDevice ? 0 : entry(u).retained_gb);
      set_to_disk_.push_back(choice(u).retained_home == Tier::kDisk ? entry(u).retained_gb : 0);
    }
  }

  static double sum(const std::vector<double>& v, size_t begin, size_t end) {
    double total = 0;
    for (size_t i = begin; i < end; ++i) total += v[i];
    return total;
  }

  void moved(const std::string& name, const std::vector<double>& there, const std::vector<double>& back,
             const std::vector<double>& items, const std::vector<double>& sets) {
    const double all = sum(items, 0, units_);
    for (size_t k = 0; k < units_; ++k) {
      at_most(name + " before it is there, window", k, sum(there, 0, k + 1),
              sum(items, 0, k + 1) - (in_.sets_leave_behind ? sets[k] : 0), all);
      at_most(name + " back too late, unit", k, sum(items, k, units_), sum(back, k + 1, units_ + 1), all);
    }
    at_most(name + " incomplete", units_, all, sum(there, 0, units_ + 1));
    at_most(name + " of more than there is", units_, sum(there, 0, units_ + 1), all);
    at_most(name + " back incomplete", units_, all, sum(back, 0, units_ + 1));
    at_most(name + " back of more than there is", units_, sum(back, 0, units_ + 1), all);
  }

  double update(size_t u) const { return choice(u).device_home ? 0 : in_.update_s[u]; }
  double staged(size_t u) const {
    return (choice(u).state_on_disk ? in_.host_state_gb[u] : 0) +
           (choice(u).weights_on_disk ? in_.host_weight_gb[u] : 0);
  }

  double own_on_disk(size_t u) const { return choice(u).state_on_disk ? in_.update_s[u] : 0; }

  // The earliest ends of the updates: each lane takes its units one after the other.
  std::vector<double> update_ends() const {
    std::vector<double> read, done, written;
    for (size_t u = 0; u < units_; ++u) {
      const double own = update(u) - plan_.early_update_s[u];
      done.push_back((u > 0 ? done[u - 1] : in_.embedding_update_s) + own);
      if (!in_.has_disk_homes() || in_.budget_gb.disk <= 0) continue;
      const double reading = staged(u) / in_.links_gbs.disk_read, writing = staged(u) / in_.links_gbs.disk_write;
      const double lane =
          u > 0 ? written[u - 1] + (in_.chase ? plan_.disk_write_gb[u - 1] : 0) / in_.links_gbs.disk_write : 0;
      const double read_before = u > 0 ? read[u - 1] : 0;
      if (!in_.is_cut_up()) {
        const double room = u < kStagedPieces ? 0 : written[u - kStagedPieces];
        read.push_back(std::max(room, read_before) + reading);
        done[u] = std::max(done[u], read[u] + own);
        written.push_back(std::max(done[u], lane) + writing);
        continue;
      }
      // The fourth piece is read when the first is written, the last when the third before it is.
      const double piece = 1.0 / in_.state_pieces, later = 1 - static_cast<double>(kStagedPieces) / in_.state_pieces;
      const double earlier = choice(u).state_on_disk ? 0 : in_.staged_s();
      const double first = (u > 0 ? done[u - 1] : in_.embedding_update_s) + piece * (own_on_disk(u) + writing);
      const double room = (u > 0 ? written[u - 1] : 0) + later * writing + piece * reading;
      read.push_back(std::max({read_before + reading, first + later * reading - earlier, room - earlier}));
      done[u] = std::max(done[u], read[u] + piece * own_on_disk(u));
      written.push_back(std::max(done[u] + piece * writing, lane + writing));
    }
    return done;
  }

  void starts() {
    double early = 0, time = 0;
    for (size_t u = 0; u < units_; ++u) {
      if (!in_.update_in_backward && plan_.early_update_s[u] > 1e-9) fault("an update in backward: unit", u);
      at_most("more of an update than there is, unit", u, plan_.early_update_s[u],
              choice(u).state_on_disk ? 0 : update(u));
      // Gradients of units 0..u are with the host when windows u - 2..0 are all that is left of backward.
      early += plan_.early_update_s[u];
      if (u >= 2) time += plan_.backward_s[u - 2] - in_.stored_in_backward_s(u);
      if (in_.update_in_backward) at_most("updates in too little time up to unit", u, early, time);
    }
    const std::vector<double> ends = update_ends();
    for (size_t u = 0; u < units_; ++u) {
      if (in_.chase || u == 0) {
        const double updated = in_.chase ? ends[u] : ends.back();
        at_most("forward before the update, unit", u,
                updated + away(u) * in_.weight_gb[u] / in_.links_gbs.h2d + (u == 0 ? in_.lead_s : 0), plan_.start_s[u]);
      }
      at_most("forward before the unit before, unit", u + 1, plan_.start_s[u] + plan_.forward_s[u],
              plan_.start_s[u + 1]);
    }
    if (in_.head_update_s > 0) {
      at_most("the head before its update", units_,
              ends.back() + in_.head_update_s + in_.head.weight_gb / in_.links_gbs.h2d, plan_.start_s[units_]);
    }
  }

  void window(const std::string& name, size_t u, double seconds, double in, double out, double read, double write) {
    at_most(name + " h2d", u, in, seconds * in_.links_gbs.h2d);
    at_most(name + " d2h", u, out, seconds * in_.links_gbs.d2h);
    at_most(name + " h2d and d2h", u, in + out, seconds * in_.links_gbs.joint);
    at_most(name + " disk read", u, read, seconds * in_.links_gbs.disk_read);
    at_most(name + " disk write", u, write, seconds * in_.links_gbs.disk_write);
  }

  double homes() const {
    double total = 0;
    for (size_t u = 0; u < units_; ++u) total += choice(u).device_home ? in_.device_home_gb[u] : 0;
    return total;
  }

  void forward(size_t u) {
    const double seconds = plan_.forward_s[u];
    at_most("forward compute", u, in_.forward_s[u] + (choice(u).device_home ? in_.device_update_s[u] : 0), seconds);
    double weights = in_.head.weight_gb;
    if (u + 1 < units_) weights = in_.weight_gb[u + 1] * away(u + 1);
    if (u == 0) weights += in_.boundary_gb[0];
    window("forward", u, seconds, weights, plan_.drain_gb[u], 0, plan_.disk_write_gb[u]);
    double held = homes();
    for (size_t i = 0; i <= u; ++i) {
      held += (plan_.choices.boundaries[i] ? in_.boundary_gb[i] : 0) + entry(i).retained_gb +
              (choice(i).keep_weights ? in_.weight_gb[i] : 0);
    }
    at_most("device memory in forward", u, held - sum(plan_.drain_gb, 0, u) + in_.forward_workspace_gb[u],
            in_.budget_gb.device, held);
  }

  void backward(size_t u) {
    const double seconds = plan_.backward_s[u];
    const size_t begin = block_begin(u);
    double compute = in_.backward_s[u] + entry(u).recompute_s, in = plan_.return_gb[u], read = plan_.disk_read_gb[u];
    if (ends_block(u)) {
      for (size_t j = begin; j < u; ++j) {
        compute += in_.forward_s[j];
        if (j + 1 == u) continue;  // next in backward: counted below
        in += in_.weight_gb[j];
        read += choice(j).weights_on_disk ? in_.weight_gb[j] : 0;
      }
    }
    if (u > 0) {
      const double again = choice(u - 1).keep_weights || choice(u - 1).device_home ? 0 : in_.weight_gb[u - 1];
      in += again;
      read += choice(u - 1).weights_on_disk ? again : 0;
    }
    double out = u + 1 < units_ ? in_.grad_gb[u + 1] * away(u + 1) : in_.head.grad_gb;
    if (u == 0) out += in_.boundary_gb[0];
    at_most("backward compute", u, compute, seconds);
    window("backward", u, seconds, in, out, read, 0);

    double held = homes() + entry(u).workspace_gb;
    for (size_t i = 0; i <= u; ++i) {
      held += (at(i, Tier::kDevice) ? in_.boundary_gb[i] : 0) + (choice(i).keep_weights ? in_.weight_gb[i] : 0) +
              (choice(i).retained_home == Tier::kDevice ? entry(i).retained_gb : 0);
    }
    for (size_t i = begin + 1; i <= u; ++i) held += in_.boundary_gb[i];
    const double ahead = sum(plan_.return_gb, u, units_ + 1) - sum(out_, u + 1, units_);
    at_most("device memory in backward", u, held + ahead, in_.budget_gb.device, held);
  }

  void head() {
    const UnitChoice& last = choice(units_ - 1);
    const double weights = last.keep_weights || last.device_home ? 0 : in_.weight_gb[units_ - 1];
    at_most("head compute", units_, in_.head.compute_s, plan_.head_s);
    window("head", units_, plan_.head_s, plan_.return_gb[units_] + weights, plan_.drain_gb[units_],
           plan_.disk_read_gb[units_] + (last.weights_on_disk ? weights : 0), plan_.disk_write_gb[units_]);
  }

  void budgets() {
    double held = in_.host_end_gb, disk = 0;
    for (size_t u = 0; u < units_; ++u) {
      disk += to_disk_[u];
      if (!in_.has_disk_homes() || choice(u).device_home) continue;
      disk += staged(u);
      held += in_.host_state_gb[u] + in_.host_weight_gb[u] - staged(u);
    }
    at_most("host memory at the end", 0, held, in_.budget_gb.host);
    held -= in_.host_end_gb;
    double staging = 0;
    for (size_t u = 0; u < units_; ++u) {
      if (in_.has_disk_homes()) staging = std::max(staging, in_.staged_share() * staged(u));
      held += out_[u] - to_disk_[u];
    }
    at_most("host memory", 0, held + staging, in_.budget_gb.host);
    at_most("disk memory", 0, disk, in_.budget_gb.disk);
  }

  void step() {
    const double step = plan_.start_s[units_] + plan_.head_s + sum(plan_.backward_s, 0, units_) + in_.tail_s;
    at_most("windows longer than the step", 0, step, plan_.step_s);
    at_most("a step longer than its windows", 0, plan_.step_s, step);
  }

  const Instance& in_;
  const WindowPlan& plan_;
  size_t units_;
  double tolerance_;
  std::vector<double> out_, to_disk_, set_out_, set_to_disk_;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> check(const Instance& instance, const WindowPlan& plan, double tolerance) {
  return Checker(instance, plan, tolerance).faults();
}

}  // namespace lazytrain::plan
