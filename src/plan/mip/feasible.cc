#include "plan/mip/feasible.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plan/mip/evaluate.h"

namespace lazytrain::plan {
namespace {

constexpr size_t kTightOnDevice = 3;    // units at home on the device, at most
constexpr double kEpsilon = 1e-9;       // GB: a byte
constexpr size_t kMaxLabels = 2000000;  // of all units together: 100 MB

// A way to get to a unit: what it holds so far.
struct Label {
  double device = 0;  // boundaries and retained sets at home on the device
  double host = 0;
  double disk = 0;
  double leaving = 0;      // bytes that leave the device with the unit
  double set_leaving = 0;  // those of its retained set
  int before = -1;         // label of the unit before, in front `before_length`
  int before_length = 0;
  std::optional<Tier> boundary;
  int menu = 0;
  Tier retained_home = Tier::kDevice;

  bool is_no_worse(const Label& other) const {
    return device <= other.device && host <= other.host && disk <= other.disk && leaving <= other.leaving &&
           set_leaving <= other.set_leaving;
  }
};
using Front = std::vector<Label>;

// The units' choices for given budgets, with weights, updates and homes left out.
class Search {
 public:
  Search(const Instance& instance, const TierGb& budget)
      : in_(instance), budget_(budget), units_(static_cast<size_t>(instance.units)) {
    const double all = std::accumulate(in_.boundary_gb.begin(), in_.boundary_gb.end(), 0.0);
    host_is_ample_ = all <= budget.host + kEpsilon && !offers_smaller_workspace();
    longest_ = std::min(units_, static_cast<size_t>(in_.max_block));
    max_front_ = std::clamp<size_t>(kMaxLabels / (units_ * longest_), 8, 500);
  }

  std::optional<std::pair<std::vector<std::optional<Tier>>, std::vector<UnitChoice>>> run() {
    fronts_.assign(units_, std::vector<Front>(longest_));
    for (size_t u = 0; u < units_; ++u) {
      extend(u);
      for (Front& front : fronts_[u]) prune(front);
    }
    for (size_t length = 0; length < longest_; ++length) {
      if (!fronts_[units_ - 1][length].empty()) return trace(length);
    }
    return {};
  }
  bool is_complete() const { return is_complete_; }

 private:
  bool is_smaller_workspace(size_t u, size_t entry) const {
    return in_.menu[u][entry].workspace_gb < in_.menu[u][0].workspace_gb - kEpsilon;
  }
  bool offers_smaller_workspace() const {
    for (size_t u = 0; u < units_; ++u) {
      for (size_t o = 1; o < in_.menu[u].size(); ++o) {
        if (is_smaller_workspace(u, o)) return true;
      }
    }
    return false;
  }

  void extend(size_t u) {
    if (u == 0) return extend_from(0, Label(), -1, 0);
    for (size_t length = 0; length < longest_; ++length) {
      const Front& front = fronts_[u - 1][length];
      for (size_t i = 0; i < front.size(); ++i) extend_from(u, front[i], static_cast<int>(i), length);
    }
  }

  void extend_from(size_t u, const Label& from, int index, size_t length) {
    Label next = from;
    next.before = index;
    next.before_length = static_cast<int>(length);
    for (size_t o = 0; o < in_.menu[u].size(); ++o) {
      if (o > 0 && !is_smaller_workspace(u, o)) continue;
      for (const Tier home : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
        if (o == 0 && home != Tier::kDevice) continue;
        if (home == Tier::kDisk && !in_.offers_disk()) continue;
        next.menu = static_cast<int>(o);
        next.retained_home = home;
        for (const Tier boundary : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
          if (boundary == Tier::kDisk && !in_.offers_disk()) continue;
          next.boundary = boundary;
          take(u, from, next, 0);
        }
        next.boundary.reset();
        if (u > 0 && length + 1 < longest_) take(u, from, next, length + 1);
      }
    }
  }

  // Adds `next` to the front of blocks that began `length` units ago, when it fits in both of the unit's windows.
  void take(size_t u, const Label& from, Label next, size_t length) {
    const MenuEntry& entry = in_.menu[u][static_cast<size_t>(next.menu)];
    double gb[3] = {0, 0, 0};
    if (next.boundary) gb[static_cast<size_t>(*next.boundary)] += in_.boundary_gb[u];
    gb[static_cast<size_t>(next.retained_home)] += entry.retained_gb;
    next.device = from.device + gb[0];
    next.host = host_is_ample_ ? 0 : from.host + gb[1];
    next.disk = from.disk + gb[2];
    next.leaving = gb[1] + gb[2];
    next.set_leaving = next.retained_home == Tier::kDevice ? 0 : entry.retained_gb;
    double buffers = 0;
    for (size_t j = 0; j < length; ++j) buffers += in_.boundary_gb[u - j];
    const double late = in_.sets_leave_behind ? from.set_leaving : 0;
    const double forward = next.device + next.leaving + late + in_.forward_workspace_gb[u];
    const double backward = next.device + next.leaving + from.leaving + buffers + entry.workspace_gb;
    if (std::max(forward, backward) > budget_.device + kEpsilon || next.host > budget_.host + kEpsilon ||
        next.disk > budget_.disk + kEpsilon) {
      return;
    }
    fronts_[u][length].push_back(next);
  }

  void prune(Front& front) {
    std::sort(front.begin(), front.end(), [](const Label& a, const Label& b) {
      return std::tie(a.device, a.host, a.disk, a.leaving) < std::tie(b.device, b.host, b.disk, b.leaving);
    });
    Front kept;
    for (const Label& label : front) {
      const auto is_better = [&](const Label& other) { return other.is_no_worse(label); };
      if (std::none_of(kept.begin(), kept.end(), is_better)) kept.push_back(label);
      if (kept.size() > 4 * max_front_) break;
    }
    if (kept.size() > max_front_) {
      is_complete_ = false;
      Front thinned;
      for (size_t i = 0; i < max_front_; ++i) thinned.push_back(kept[i * kept.size() / max_front_]);
      kept = std::move(thinned);
    }
    front = std::move(kept);
  }

  std::pair<std::vector<std::optional<Tier>>, std::vector<UnitChoice>> trace(size_t length) const {
    std::vector<std::optional<Tier>> boundaries(units_);
    std::vector<UnitChoice> choices(units_);
    int index = 0;
    for (size_t u = units_; u-- > 0;) {
      const Label& label = fronts_[u][length][static_cast<size_t>(index)];
      boundaries[u] = label.boundary;
      choices[u].menu = label.menu;
      choices[u].retained_home = label.retained_home;
      index = label.before;
      length = static_cast<size_t>(label.before_length);
    }
    return {boundaries, choices};
  }

  const Instance& in_;
  TierGb budget_;
  size_t units_, longest_ = 1, max_front_ = 8;
  bool host_is_ample_ = false, is_complete_ = true;
  std::vector<std::vector<Front>> fronts_;
};

// Which units live on the device, and how many of the others have their state and weights on disk. Those on the device
// are the first; those on disk stand evenly among the rest, so that updates in host memory hide behind the disk.
struct Homes {
  size_t device = 0, state = 0, weights = 0;
  bool is_chosen(size_t u, size_t count, size_t units) const {
    const size_t others = units - device, at = u - device;
    return u >= device && (at + 1) * count / others > at * count / others;
  }
};

std::vector<UnitChoice> choices_of(const Instance& in, const Homes& homes) {
  const size_t units = in.host_state_gb.size();
  std::vector<UnitChoice> choices(static_cast<size_t>(in.units));
  for (size_t u = 0; u < units; ++u) {
    choices[u].device_home = u < homes.device;
    choices[u].state_on_disk = homes.is_chosen(u, homes.state, units);
    choices[u].weights_on_disk = choices[u].state_on_disk && homes.is_chosen(u, homes.weights, units);
  }
  return choices;
}

TierGb left_beside(const Instance& in, const std::vector<UnitChoice>& choices) {
  TierGb left = in.budget_gb;
  double staged = 0;
  for (size_t u = 0; u < in.host_state_gb.size(); ++u) {
    const UnitChoice& choice = choices[u];
    if (choice.device_home) {
      left.device -= in.device_home_gb[u];
      continue;
    }
    const double state = in.host_state_gb[u], weights = in.host_weight_gb[u];
    (choice.state_on_disk ? left.disk : left.host) -= state;
    (choice.weights_on_disk ? left.disk : left.host) -= weights;
    staged = std::max(staged, (choice.state_on_disk ? state : 0) + (choice.weights_on_disk ? weights : 0));
  }
  if (left.host < in.host_end_gb) left.host = -1;
  left.host -= in.staged_share() * staged;
  return left;
}

std::optional<WindowChoices> fit_beside(const Instance& in, const Homes& homes, bool& is_proof) {
  std::vector<UnitChoice> units = choices_of(in, homes);
  const TierGb left = left_beside(in, units);
  if (left.device < -kEpsilon || left.host < -kEpsilon || left.disk < -kEpsilon) return {};
  Search search(in, {std::max(0.0, left.device), std::max(0.0, left.host), std::max(0.0, left.disk)});
  auto found = search.run();
  is_proof = is_proof && search.is_complete();
  if (!found) return {};
  for (size_t u = 0; u < units.size(); ++u) {
    units[u].menu = found->second[u].menu;
    units[u].retained_home = found->second[u].retained_home;
  }
  return WindowChoices{std::move(found->first), std::move(units)};
}

}  // namespace

Fit find_fit(const Instance& in) {
  Fit fit;
  if (!in.has_disk_homes()) {
    fit.choices = fit_beside(in, {}, fit.is_proof);
    return fit;
  }
  fit.is_proof = false;
  const auto units = static_cast<size_t>(in.units);
  const double boundaries = std::accumulate(in.boundary_gb.begin(), in.boundary_gb.end(), 0.0);
  const size_t stride = std::max<size_t>(1, units / 16);
  // As much as possible stays in host memory, first with room there for all boundaries, then without.
  for (size_t device = 0; device <= units;
       device += device + stride > units && device < units ? units - device : stride) {
    for (const double room : {boundaries, 0.0}) {
      Homes homes{device, 0, 0};
      const auto enough = [&] { return left_beside(in, choices_of(in, homes)).host >= room; };
      while (!enough() && homes.state + device < units) ++homes.state;
      while (!enough() && in.disk_weights && homes.weights < homes.state) ++homes.weights;
      bool ignored = true;
      if ((fit.choices = fit_beside(in, homes, ignored))) return fit;
    }
  }
  return fit;
}

std::vector<WindowChoices> tight_fits(const Instance& in) {
  std::vector<WindowChoices> fits;
  if (!in.has_disk_homes() || in.budget_gb.disk <= 0) return fits;
  const auto units = static_cast<size_t>(in.units);
  Evaluator evaluator(in);
  for (size_t device = 0; device <= std::min<size_t>(units, kTightOnDevice); ++device) {
    Homes homes{device, 0, 0};
    while (homes.state + device < units && left_beside(in, choices_of(in, homes)).host < 0) ++homes.state;
    for (; homes.state + device <= units; ++homes.state) {
      WindowChoices choices{std::vector<std::optional<Tier>>(units, Tier::kHost), choices_of(in, homes)};
      for (size_t u = units; u-- > 0;) {
        choices.boundaries[u] = Tier::kDevice;
        if (evaluator.excess(choices).device <= 0) continue;
        choices.boundaries[u] = Tier::kHost;
        break;
      }
      if (!std::isfinite(evaluator.step_s(choices))) continue;
      fits.push_back(std::move(choices));
      break;
    }
  }
  return fits;
}

Shortage find_shortage(const Instance& instance) {
  const auto fits_with = [&](Tier tier, double gb) {
    Instance larger = instance;
    (tier == Tier::kDevice ? larger.budget_gb.device : larger.budget_gb.host) = gb;
    return find_fit(larger).choices.has_value();
  };
  std::optional<Shortage> least;
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    const double budget = tier == Tier::kDevice ? instance.budget_gb.device : instance.budget_gb.host;
    double low = budget, high = std::max(1.0, 2 * budget);
    while (!fits_with(tier, high) && high < 1e7) high *= 2;
    if (high >= 1e7) continue;
    while (high - low > 1e-6 * std::max(1e-3, high)) {
      const double middle = (low + high) / 2;
      (fits_with(tier, middle) ? high : low) = middle;
    }
    if (!least || high - budget < least->lacking_gb) least = Shortage{tier, high - budget, high, budget};
  }
  return least.value_or(Shortage{Tier::kDevice, 0, 0, instance.budget_gb.device});
}

}  // namespace lazytrain::plan
