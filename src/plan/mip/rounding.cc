#include "plan/mip/rounding.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "plan/mip/evaluate.h"

namespace lazytrain::plan {
namespace {

double value_of(const std::vector<double>& values, int column) {
  return column < 0 ? 0 : values[static_cast<size_t>(column)];
}

// Hands out options so that their counts follow the sums of their shares.
template <typename Option>
class Diffusion {
 public:
  void ask(const Option& option, double share) { behind_[option] += share; }
  Option take() {
    const auto most = std::max_element(behind_.begin(), behind_.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    most->second -= 1;
    return most->first;
  }

 private:
  std::map<Option, double> behind_;
};

enum class Weights { kStreamed, kDeviceHome, kStateOnDisk, kAllOnDisk };
constexpr int kNone = -1;  // no home: recomputed

using Change = std::pair<std::optional<Tier>, UnitChoice>;

// What else unit u could be, one thing changed.
std::vector<Change> changes_of(const Instance& in, const WindowChoices& choices, size_t u) {
  std::vector<Change> changes;
  const auto& boundary = choices.boundaries[u];
  const UnitChoice& unit = choices.units[u];
  if (boundary) {
    if (in.budget_gb.host > 0) changes.emplace_back(Tier::kHost, unit);
    if (in.offers_disk()) changes.emplace_back(Tier::kDisk, unit);
    changes.emplace_back(Tier::kDevice, unit);
  }
  const auto with = [&](auto change) {
    UnitChoice other = unit;
    change(other);
    changes.emplace_back(boundary, other);
  };
  with([](UnitChoice& c) { c.keep_weights = c.device_home = false; });
  if (in.has_disk_homes() && in.budget_gb.disk > 0) {
    with([](UnitChoice& c) { c.device_home = false, c.state_on_disk = true; });
    if (in.disk_weights) with([](UnitChoice& c) { c.device_home = false, c.state_on_disk = c.weights_on_disk = true; });
  }
  if (unit.menu > 0) {
    if (in.budget_gb.host > 0) with([](UnitChoice& c) { c.retained_home = Tier::kHost; });
    if (in.offers_disk()) with([](UnitChoice& c) { c.retained_home = Tier::kDisk; });
    with([](UnitChoice& c) { c.menu = 0, c.retained_home = Tier::kDevice; });
  }
  return changes;
}

}  // namespace

WindowChoices rounded(const Instance& in, const WindowProblem& problem, const std::vector<double>& values) {
  Diffusion<int> boundaries, keeps;
  Diffusion<Weights> weights;
  std::map<size_t, Diffusion<std::pair<int, int>>> sets;  // by length of the menu: units with equal ones share it
  WindowChoices choices;
  int length = 0;
  for (const WindowColumns::Unit& unit : problem.columns.units) {
    const size_t u = choices.units.size();
    const std::array<double, 3> homes = {value_of(values, unit.on_device), value_of(values, unit.on_host),
                                         value_of(values, unit.on_disk)};
    for (size_t h = 0; h < homes.size(); ++h) boundaries.ask(static_cast<int>(h), homes[h]);
    boundaries.ask(kNone, 1 - homes[0] - homes[1] - homes[2]);
    const int home = boundaries.take();
    std::optional<Tier> boundary;
    if (home != kNone) boundary = static_cast<Tier>(home);
    if (!boundary && (u == 0 || length >= in.max_block)) boundary = Tier::kDevice;
    length = boundary ? 1 : length + 1;
    choices.boundaries.push_back(boundary);

    auto& set = sets[in.menu[u].size()];
    for (size_t o = 0; o < unit.retained.size(); ++o) {
      for (size_t h = 0; h < unit.retained[o].size(); ++h) {
        if (unit.retained[o][h] < 0) continue;
        set.ask({static_cast<int>(o), static_cast<int>(h)}, value_of(values, unit.retained[o][h]));
      }
    }
    const double at_home = value_of(values, unit.device_home), state = value_of(values, unit.state_on_disk),
                 all = value_of(values, unit.weights_on_disk), keep = value_of(values, unit.keep);
    weights.ask(Weights::kStreamed, 1 - at_home - state);
    weights.ask(Weights::kDeviceHome, at_home);
    weights.ask(Weights::kStateOnDisk, state - all);
    weights.ask(Weights::kAllOnDisk, all);
    keeps.ask(0, 1 - keep);
    keeps.ask(1, keep);
    const auto [entry, retained_home] = set.take();
    const Weights where = weights.take();
    UnitChoice choice;
    choice.menu = entry;
    choice.retained_home = static_cast<Tier>(retained_home);
    choice.device_home = where == Weights::kDeviceHome;
    choice.weights_on_disk = where == Weights::kAllOnDisk;
    choice.state_on_disk = where == Weights::kStateOnDisk || choice.weights_on_disk;
    choice.keep_weights = keeps.take() == 1 && !choice.device_home;
    choices.units.push_back(choice);
  }
  return choices;
}

std::optional<WindowChoices> repaired(const Instance& in, WindowChoices choices) {
  Evaluator evaluator(in);
  double excess = evaluator.excess(choices).total();
  while (excess > 0) {
    double least = excess;
    size_t where = 0;
    Change best;
    for (size_t u = 0; u < choices.units.size(); ++u) {
      const Change now = {choices.boundaries[u], choices.units[u]};
      for (const Change& change : changes_of(in, choices, u)) {
        std::tie(choices.boundaries[u], choices.units[u]) = change;
        const double left = evaluator.excess(choices).total();
        if (left < least - 1e-9) {
          least = left;
          where = u;
          best = change;
        }
      }
      std::tie(choices.boundaries[u], choices.units[u]) = now;
    }
    if (least >= excess) return {};
    std::tie(choices.boundaries[where], choices.units[where]) = best;
    excess = least;
  }
  return choices;
}

}  // namespace lazytrain::plan
