#include "plan/mip/window_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "plan/letters.h"

namespace lazytrain::plan {

std::vector<std::pair<int, int>> edges_of(const WindowChoices& choices) {
  std::vector<std::pair<int, int>> edges;
  const int units = static_cast<int>(choices.boundaries.size());
  int first = 0;
  for (int i = 1; i <= units; ++i) {
    if (i < units && !choices.boundaries[static_cast<size_t>(i)]) continue;
    edges.emplace_back(first, i);
    first = i;
  }
  return edges;
}

Json to_json(const Instance& instance, const WindowPlan& plan) {
  Json boundaries = Json::array(), units = Json::array(), edges = Json::array();
  for (const auto& home : plan.choices.boundaries) boundaries.push_back(home ? Json(name_of(*home)) : Json());
  for (const auto& [first, end] : edges_of(plan.choices)) edges.push_back({first, end});
  for (size_t u = 0; u < plan.choices.units.size(); ++u) {
    const UnitChoice& choice = plan.choices.units[u];
    Json unit = {{"menu", choice.menu},
                 {"retained", instance.menu[u][static_cast<size_t>(choice.menu)].retained},
                 {"retained_home", name_of(choice.retained_home)},
                 {"keep_weights", choice.keep_weights},
                 {"device_home", choice.device_home}};
    if (instance.has_disk_homes()) {
      unit["state_on_disk"] = choice.state_on_disk;
      unit["weights_on_disk"] = choice.weights_on_disk;
    }
    units.push_back(std::move(unit));
  }
  Json json = {{"step_s", plan.step_s},
               {"edges", std::move(edges)},
               {"boundaries", std::move(boundaries)},
               {"units", std::move(units)},
               {"forward_s", plan.forward_s},
               {"backward_s", plan.backward_s},
               {"head_s", plan.head_s},
               {"start_s", plan.start_s},
               {"drain_gb", plan.drain_gb},
               {"return_gb", plan.return_gb},
               {"disk_write_gb", plan.disk_write_gb},
               {"disk_read_gb", plan.disk_read_gb}};
  if (instance.update_in_backward) json["early_update_s"] = plan.early_update_s;
  return json;
}

namespace {

std::string set_name(const MenuEntry& entry) {
  std::string name;
  for (const std::string& value : entry.retained) name += (name.empty() ? "" : "+") + value;
  return name.empty() ? "nothing" : name;
}

// The retained sets as a digit a unit, then which digit is which set.
std::string retained_map(const Instance& instance, const WindowPlan& plan) {
  std::string sets, homes, legend;
  std::vector<std::string> names;
  for (size_t u = 0; u < plan.choices.units.size(); ++u) {
    const UnitChoice& choice = plan.choices.units[u];
    const std::string name = set_name(instance.menu[u][static_cast<size_t>(choice.menu)]);
    const auto at = std::find(names.begin(), names.end(), name) - names.begin();
    if (static_cast<size_t>(at) == names.size()) names.push_back(name);
    sets += at < 26 ? static_cast<char>('a' + at) : '+';
    homes += choice.menu == 0 ? '.' : letter_of(choice.retained_home);
  }
  for (size_t i = 0; i < std::min<size_t>(names.size(), 26); ++i) {
    legend += fmt::format("{}{} {}", i > 0 ? ", " : "", static_cast<char>('a' + i), names[i]);
  }
  return fmt::format("retained:   {}   {}\n  home:     {}   {}\n", sets, legend, homes, kHomeLegend);
}

}  // namespace

std::string describe(const Instance& instance, const WindowPlan& plan) {
  std::string boundaries, weights;
  for (const auto& home : plan.choices.boundaries) boundaries += letter_of(home);
  for (const UnitChoice& c : plan.choices.units) {
    weights += weights_letter(c.device_home, c.keep_weights, c.weights_on_disk, c.state_on_disk);
  }
  const double exposed = plan.step_s - instance.bound_s();
  return fmt::format("boundaries: {}   {}, . recomputed\n", boundaries, kHomeLegend) + retained_map(instance, plan) +
         fmt::format("weights:    {}   {}\n", weights, kWeightsLegend) +
         fmt::format("step: {}, of it {} more than with everything hidden and nothing recomputed\n",
                     format_seconds(plan.step_s), format_seconds(std::max(0.0, exposed)));
}

}  // namespace lazytrain::plan
