#include "plan/mip/incumbent.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "base/rng.h"
#include "plan/mip/evaluate.h"

namespace lazytrain::plan {
namespace {

constexpr double kGain = 1e-9;  // seconds: less is no gain
constexpr std::array kTiers = {Tier::kDevice, Tier::kHost, Tier::kDisk};

// Units with equal costs: their choices can be exchanged.
bool are_alike(const Instance& in, size_t a, size_t b) {
  for (const auto* v : {&in.forward_s, &in.backward_s, &in.boundary_gb, &in.weight_gb, &in.grad_gb, &in.update_s,
                        &in.device_home_gb, &in.device_update_s, &in.forward_workspace_gb}) {
    if ((*v)[a] != (*v)[b]) return false;
  }
  if (in.has_disk_homes() &&
      (in.host_state_gb[a] != in.host_state_gb[b] || in.host_weight_gb[a] != in.host_weight_gb[b])) {
    return false;
  }
  return in.menu[a] == in.menu[b];
}

// One unit's change: its boundary's home, its retained set, or where its weights are.
struct Change {
  enum class What { kBoundary, kRetained, kWeights } what = What::kBoundary;
  std::optional<Tier> boundary;
  int menu = 0;
  Tier home = Tier::kDevice;
  UnitChoice weights;  // keep_weights, device_home, state_on_disk, weights_on_disk
};

class Improver {
 public:
  Improver(const Instance& instance, const WindowChoices& choices, int evaluations, double target_s, int seed)
      : in_(instance), evaluator_(instance), best_(choices), left_(evaluations), seed_(seed) {
    target_s_ = std::max(target_s, instance.bound_s() * (1 + 1e-6));
    best_s_ = price();
    for (size_t u = 0; u < choices.units.size(); ++u) {
      size_t first = 0;
      while (first < u && (alike_[first] != first || !are_alike(in_, first, u))) ++first;
      alike_.push_back(first);
    }
    for (size_t o = 0; o < max_menu(); ++o) {
      for (const Tier home : kTiers) {
        if (usable(home) && (o > 0 || home == Tier::kDevice)) changes_.push_back(retained(static_cast<int>(o), home));
      }
    }
    for (const Tier home : kTiers) {
      if (usable(home)) changes_.push_back(boundary(home));
    }
    changes_.push_back(boundary({}));
    changes_.push_back(weights(false, false, false, false));
    changes_.push_back(weights(true, false, false, false));
    changes_.push_back(weights(false, true, false, false));
    if (!in_.has_disk_homes()) return;
    for (const bool keep : {false, true}) {
      changes_.push_back(weights(keep, false, true, false));
      if (in_.disk_weights) changes_.push_back(weights(keep, false, true, true));
    }
  }

  // Climbs, then again and again changes one to three stretches of units and climbs from there.
  WindowPlan run() {
    climb();
    const CounterRng rng(static_cast<uint64_t>(seed_), 0);
    for (uint64_t draw = 0; left_ > 0 && best_s_ > target_s_;) {
      const WindowChoices before = best_;
      const double before_s = best_s_;
      for (uint64_t n = 1 + rng.below(draw++, 3); n > 0; --n) shake(rng, draw);
      climb();
      if (best_s_ < before_s - kGain) continue;
      best_ = before;
      best_s_ = before_s;
    }
    auto plan = evaluator_.plan(best_);
    if (!plan) throw std::logic_error("the start of an improvement does not fit");
    return *plan;
  }

 private:
  void climb() {
    for (bool improved = true; improved && left_ > 0;) {
      make_room();
      improved = take_gains();
      improved = sweep() || improved;
      improved = exchange() || improved;
    }
  }

  // Makes one change of a stretch of units, whatever it costs, as far as it fits.
  void shake(const CounterRng& rng, uint64_t& draw) {
    const size_t units = best_.units.size();
    const size_t first = rng.below(draw++, units), longest = 1 + rng.below(draw++, units);
    const size_t end = std::min(units, first + 1 + rng.below(draw++, longest));
    const Change& change = changes_[rng.below(draw++, changes_.size())];
    for (size_t u = first; u < end; ++u) {
      const auto boundary = best_.boundaries[u];
      const UnitChoice unit = best_.units[u];
      if (!apply(change, u)) continue;
      if (const double seconds = price(); std::isfinite(seconds)) {
        best_s_ = seconds;
      } else {
        restore(u, boundary, unit);
      }
    }
  }

  static Change retained(int menu, Tier home) {
    Change c;
    c.what = Change::What::kRetained;
    c.menu = menu;
    c.home = home;
    return c;
  }
  static Change boundary(std::optional<Tier> home) {
    Change c;
    c.boundary = home;
    return c;
  }
  static Change weights(bool keep, bool device_home, bool state_on_disk, bool weights_on_disk) {
    Change c;
    c.what = Change::What::kWeights;
    c.weights.keep_weights = keep;
    c.weights.device_home = device_home;
    c.weights.state_on_disk = state_on_disk;
    c.weights.weights_on_disk = weights_on_disk;
    return c;
  }
  bool usable(Tier tier) const {
    return tier == Tier::kDevice || (tier == Tier::kHost ? in_.budget_gb.host > 0 : in_.offers_disk());
  }
  size_t max_menu() const {
    size_t most = 0;
    for (const auto& menu : in_.menu) most = std::max(most, menu.size());
    return most;
  }
  double price() {
    --left_;
    return evaluator_.step_s(best_);
  }

  // False when the unit is so already or cannot be so.
  bool apply(const Change& change, size_t u) {
    UnitChoice& unit = best_.units[u];
    switch (change.what) {
      case Change::What::kBoundary:
        if (best_.boundaries[u] == change.boundary || (u == 0 && !change.boundary)) return false;
        if (!change.boundary && block_length_without(u) > in_.max_block) return false;
        best_.boundaries[u] = change.boundary;
        return true;
      case Change::What::kRetained:
        if (static_cast<size_t>(change.menu) >= in_.menu[u].size()) return false;
        if (unit.menu == change.menu && unit.retained_home == change.home) return false;
        unit.menu = change.menu;
        unit.retained_home = change.home;
        return true;
      case Change::What::kWeights:
        break;
    }
    const UnitChoice old = unit;
    unit.keep_weights = change.weights.keep_weights;
    unit.device_home = change.weights.device_home;
    unit.state_on_disk = change.weights.state_on_disk;
    unit.weights_on_disk = change.weights.weights_on_disk;
    return !(unit == old);
  }
  // Of the block that would hold unit u if its boundary were dropped.
  int block_length_without(size_t u) const {
    size_t first = u - 1, end = u + 1;
    while (!best_.boundaries[first]) --first;
    while (end < best_.boundaries.size() && !best_.boundaries[end]) ++end;
    return static_cast<int>(end - first);
  }
  void restore(size_t u, const std::optional<Tier>& boundary, const UnitChoice& unit) {
    best_.boundaries[u] = boundary;
    best_.units[u] = unit;
  }
  // What unit u takes of the tiers, each as a part of its budget; for an even seed of the device alone.
  double share(size_t u) const {
    const UnitChoice& unit = best_.units[u];
    std::array<double, 3> gb = {};
    if (best_.boundaries[u]) gb[static_cast<size_t>(*best_.boundaries[u])] += in_.boundary_gb[u];
    gb[static_cast<size_t>(unit.retained_home)] += in_.menu[u][static_cast<size_t>(unit.menu)].retained_gb;
    if (unit.keep_weights) gb[0] += in_.weight_gb[u];
    if (unit.device_home) gb[0] += in_.device_home_gb[u];
    const double device = gb[0] / std::max(in_.budget_gb.device, 1e-3);
    // Which of the tiers is the scarce one nobody knows beforehand: searches differ in what they count.
    if (seed_ % 2 == 0) return device;
    return device + gb[1] / std::max(in_.budget_gb.host, 1e-3) + gb[2] / std::max(in_.budget_gb.disk, 1e-3);
  }

  // Applies the change when it makes the step at least `gain` shorter.
  bool try_change(const Change& change, size_t u, double gain) {
    const auto boundary = best_.boundaries[u];
    const UnitChoice unit = best_.units[u];
    if (!apply(change, u)) return false;
    const double seconds = price();
    if (seconds <= best_s_ - gain) {
      best_s_ = seconds;
      return true;
    }
    restore(u, boundary, unit);
    return false;
  }

  // What can leave the device for nothing leaves it: early units first, they have the most time.
  void make_room() {
    for (size_t u = 0; u < best_.units.size() && left_ > 0; ++u) {
      for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
        if (!usable(tier)) continue;
        if (best_.boundaries[u] == Tier::kDevice) try_change(boundary(tier), u, 0);
        const UnitChoice& unit = best_.units[u];
        if (unit.menu > 0 && unit.retained_home == Tier::kDevice) try_change(retained(unit.menu, tier), u, 0);
      }
      if (best_.units[u].keep_weights)
        try_change(weights(false, false, best_.units[u].state_on_disk, best_.units[u].weights_on_disk), u, 0);
    }
  }

  // All single changes by what they gain for the part of the budgets they take, best first, late units first among
  // equals.
  bool take_gains() {
    struct Gain {
      double ratio;
      size_t unit;
      const Change* change;
    };
    std::vector<Gain> gains;
    for (size_t u = 0; u < best_.units.size(); ++u) {
      const auto boundary = best_.boundaries[u];
      const UnitChoice unit = best_.units[u];
      const double before = share(u);
      for (const Change& change : changes_) {
        if (left_ <= 0) break;
        if (!apply(change, u)) continue;
        const double gain = best_s_ - price(), taken = share(u) - before;
        if (gain > kGain) gains.push_back({gain / std::max(taken, 1e-6), u, &change});
        restore(u, boundary, unit);
      }
    }
    std::stable_sort(gains.begin(), gains.end(), [](const Gain& a, const Gain& b) {
      if (std::abs(a.ratio - b.ratio) > 1e-6 * std::abs(a.ratio)) return a.ratio > b.ratio;
      return a.unit > b.unit;
    });
    bool improved = false;
    for (const Gain& gain : gains) {
      if (left_ <= 0) break;
      improved = try_change(*gain.change, gain.unit, kGain) || improved;
    }
    return improved;
  }

  // Exchanges: where a change helps but does not fit, an early unit gives up what it holds on the device.
  bool sweep() {
    bool improved = false;
    for (const Change& change : changes_) {
      for (size_t u = best_.units.size(); u-- > 0 && left_ > 0;) improved = try_change(change, u, kGain) || improved;
      for (size_t u = 0; u + 1 < best_.units.size() && left_ > 0; ++u) improved = try_pair(change, u) || improved;
    }
    return improved;
  }

  // Where budgets are full nothing can be taken, but places can be changed.
  bool exchange() {
    bool improved = false;
    const size_t units = best_.units.size();
    for (size_t apart = 1; apart < units; apart *= 2) {
      for (size_t u = 0; u + apart < units && left_ > 0; ++u) {
        UnitChoice &a = best_.units[u], &b = best_.units[u + apart];
        if (!(a == b) && alike_[u] == alike_[u + apart]) improved = try_swap(a, b) || improved;
        auto &here = best_.boundaries[u], &there = best_.boundaries[u + apart];
        if (here && there && *here != *there) improved = try_swap(here, there) || improved;
      }
    }
    return improved;
  }
  template <typename T>
  bool try_swap(T& a, T& b) {
    std::swap(a, b);
    const double seconds = price();
    if (seconds <= best_s_ - kGain) {
      best_s_ = seconds;
      return true;
    }
    std::swap(a, b);
    return false;
  }

  // The same change for two neighbours: windows of both are bound by what they share.
  bool try_pair(const Change& change, size_t u) {
    const auto boundary = best_.boundaries[u];
    const UnitChoice unit = best_.units[u];
    if (!apply(change, u)) return false;
    if (try_change(change, u + 1, kGain)) return true;
    restore(u, boundary, unit);
    return false;
  }

  const Instance& in_;
  Evaluator evaluator_;
  WindowChoices best_;
  double best_s_ = 0, target_s_ = 0;
  int left_, seed_;
  std::vector<Change> changes_;
  std::vector<size_t> alike_;  // by unit: the first one with its costs
};

}  // namespace

WindowPlan improve(const Instance& instance, const WindowChoices& choices, int evaluations, double target_s, int seed) {
  return Improver(instance, choices, evaluations, target_s, seed).run();
}

namespace {

// Brings late boundaries and sets back to the device and swaps neighbours into order, as long as the step stays as
// short.
class Regular {
 public:
  Regular(const Instance& instance, const WindowPlan& plan, double allowed_s)
      : in_(instance), evaluator_(instance), plan_(plan), choices_(plan.choices), allowed_s_(allowed_s) {}

  WindowPlan run() {
    for (size_t u = choices_.units.size(); u-- > 0 && left_ > 0;) {
      if (choices_.boundaries[u]) bring_home(*choices_.boundaries[u]);
      if (choices_.units[u].menu > 0) bring_home(choices_.units[u].retained_home);
    }
    for (bool swapped = true; swapped && left_ > 0;) {
      swapped = false;
      for (size_t u = 0; u + 1 < choices_.units.size() && left_ > 0; ++u) {
        if (!are_alike(in_, u, u + 1)) continue;
        swapped = swap_boundaries(u) || swapped;
        swapped = swap_units(u) || swapped;
      }
    }
    const auto plan = evaluator_.plan(choices_);
    return plan && plan->step_s <= allowed_s_ ? *plan : plan_;
  }

 private:
  bool fits() {
    --left_;
    return evaluator_.step_s(choices_) <= allowed_s_;
  }
  void bring_home(Tier& home) {
    const Tier before = home;
    home = Tier::kDevice;
    if (before != home && !fits()) home = before;
  }
  // Disk before host before device: late ones stay.
  bool swap_boundaries(size_t u) {
    auto &a = choices_.boundaries[u], &b = choices_.boundaries[u + 1];
    if (!a || !b || *a >= *b) return false;
    std::swap(a, b);
    if (fits()) return true;
    std::swap(a, b);
    return false;
  }
  static auto rank(const UnitChoice& unit) {
    return std::make_tuple(!unit.device_home, unit.keep_weights, unit.menu, -static_cast<int>(unit.retained_home));
  }
  bool swap_units(size_t u) {
    UnitChoice &a = choices_.units[u], &b = choices_.units[u + 1];
    if (!(rank(b) < rank(a))) return false;
    std::swap(a, b);
    if (fits()) return true;
    std::swap(a, b);
    return false;
  }

  const Instance& in_;
  Evaluator evaluator_;
  const WindowPlan& plan_;
  WindowChoices choices_;
  double allowed_s_;
  int left_ = 10000;
};

// Every unit with this retained set there, late units first, as far as they fit.
WindowChoices filled(Evaluator& evaluator, const Instance& in, WindowChoices choices, size_t entry, Tier home) {
  for (size_t u = choices.units.size(); u-- > 0;) {
    if (entry >= in.menu[u].size()) continue;
    const UnitChoice before = choices.units[u];
    choices.units[u].menu = static_cast<int>(entry);
    choices.units[u].retained_home = home;
    if (!std::isfinite(evaluator.step_s(choices))) choices.units[u] = before;
  }
  return choices;
}

}  // namespace

WindowPlan regular_plan(const Instance& instance, const WindowPlan& plan, double allowed_s) {
  return Regular(instance, plan, allowed_s).run();
}

WindowPlan greedy_plan(const Instance& instance, const WindowChoices& fit, int evaluations) {
  Evaluator evaluator(instance);
  std::vector<std::pair<double, WindowChoices>> starts = {{evaluator.step_s(fit), fit}};
  size_t entries = 0;
  for (const auto& menu : instance.menu) entries = std::max(entries, menu.size());
  for (size_t o = 1; o < entries; ++o) {
    for (const Tier home : kTiers) {
      if (home == Tier::kHost && instance.budget_gb.host <= 0) continue;
      if (home == Tier::kDisk && !instance.offers_disk()) continue;
      WindowChoices start = filled(evaluator, instance, fit, o, home);
      const double seconds = evaluator.step_s(start);
      starts.emplace_back(seconds, std::move(start));
    }
  }
  std::stable_sort(starts.begin(), starts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  starts.resize(std::min<size_t>(starts.size(), 4));
  std::optional<WindowPlan> best;
  int seed = 1, best_seed = 1;
  for (const auto& [seconds, start] : starts) {
    WindowPlan plan = improve(instance, start, evaluations / 8, 0, seed);
    if (!best || plan.step_s < best->step_s) {
      best = std::move(plan);
      best_seed = seed;
    }
    if (best->step_s <= instance.bound_s() * (1 + 1e-6)) return *best;
    ++seed;
  }
  return improve(instance, best->choices, evaluations / 2, 0, best_seed);
}

}  // namespace lazytrain::plan
