#include <algorithm>

#include "plan/mip/window_problem.h"

// Between a plan and the columns of the program.
namespace lazytrain::plan {
namespace {

bool is_one(const std::vector<double>& values, int column) {
  return column >= 0 && values[static_cast<size_t>(column)] > 0.5;
}

UnitChoice unit_choice(const WindowColumns::Unit& unit, const std::vector<double>& values) {
  UnitChoice choice;
  for (size_t o = 0; o < unit.retained.size(); ++o) {
    for (size_t h = 0; h < unit.retained[o].size(); ++h) {
      if (!is_one(values, unit.retained[o][h])) continue;
      choice.menu = static_cast<int>(o);
      choice.retained_home = static_cast<Tier>(h);
    }
  }
  choice.keep_weights = is_one(values, unit.keep);
  choice.device_home = is_one(values, unit.device_home);
  choice.state_on_disk = is_one(values, unit.state_on_disk);
  choice.weights_on_disk = is_one(values, unit.weights_on_disk);
  return choice;
}

}  // namespace

WindowChoices WindowProblem::choices_of(const std::vector<double>& values) const {
  WindowChoices choices;
  for (const WindowColumns::Unit& unit : columns.units) {
    auto& home = choices.boundaries.emplace_back();
    if (is_one(values, unit.on_device)) home = Tier::kDevice;
    if (is_one(values, unit.on_host)) home = Tier::kHost;
    if (is_one(values, unit.on_disk)) home = Tier::kDisk;
    choices.units.push_back(unit_choice(unit, values));
  }
  return choices;
}

WindowPlan WindowProblem::plan_of(const std::vector<double>& values) const {
  WindowPlan plan;
  plan.choices = choices_of(values);
  const auto value = [&](int column) { return column < 0 ? 0.0 : std::max(0.0, values[static_cast<size_t>(column)]); };
  plan.head_s = value(columns.head);
  plan.step_s = plan.head_s + value(columns.tail);
  for (const WindowColumns::Unit& unit : columns.units) {
    plan.forward_s.push_back(value(unit.forward));
    plan.backward_s.push_back(value(unit.backward));
    plan.early_update_s.push_back(value(unit.early_update));
    plan.step_s += plan.backward_s.back();
  }
  for (size_t w = 0; w < columns.start.size(); ++w) {
    plan.start_s.push_back(value(columns.start[w]));
    plan.drain_gb.push_back(value(columns.drain[w]));
    plan.return_gb.push_back(value(columns.back[w]));
    plan.disk_write_gb.push_back(value(columns.disk_write[w]));
    plan.disk_read_gb.push_back(value(columns.disk_read[w]));
  }
  plan.step_s += plan.start_s.back();
  return plan;
}

std::vector<double> WindowProblem::values_of(const WindowPlan& plan) const {
  std::vector<double> values(mip.columns.size(), 0);
  const auto set = [&](int column, double value) {
    if (column >= 0) values[static_cast<size_t>(column)] = value;
  };
  const auto units = static_cast<int>(columns.units.size());
  for (const auto& [first, end] : edges_of(plan.choices)) {
    set(columns.units[static_cast<size_t>(first)].edges[static_cast<size_t>(end - first - 1)], 1);
    for (const auto& [read, column] : columns.disk_stream[static_cast<size_t>(end - 1)]) {
      if (read >= first) set(column, plan.choices.units[static_cast<size_t>(read)].weights_on_disk ? 1 : 0);
    }
  }
  for (size_t u = 0; u < columns.units.size(); ++u) {
    const WindowColumns::Unit& unit = columns.units[u];
    const UnitChoice& choice = plan.choices.units[u];
    const auto home = plan.choices.boundaries[u];
    set(unit.on_device, home == Tier::kDevice ? 1 : 0);
    set(unit.on_host, home == Tier::kHost ? 1 : 0);
    set(unit.on_disk, home == Tier::kDisk ? 1 : 0);
    set(unit.retained[static_cast<size_t>(choice.menu)][static_cast<size_t>(choice.retained_home)], 1);
    set(unit.keep, choice.keep_weights ? 1 : 0);
    set(unit.device_home, choice.device_home ? 1 : 0);
    set(unit.state_on_disk, choice.state_on_disk ? 1 : 0);
    set(unit.weights_on_disk, choice.weights_on_disk ? 1 : 0);
    set(unit.disk_refetch, choice.weights_on_disk && !choice.keep_weights ? 1 : 0);
    set(unit.early_update, plan.early_update_s[u]);
    set(unit.forward, plan.forward_s[u]);
    set(unit.backward, plan.backward_s[u]);
  }
  for (size_t w = 0; w <= static_cast<size_t>(units); ++w) {
    set(columns.drain[w], plan.drain_gb[w]);
    set(columns.back[w], plan.return_gb[w]);
    set(columns.disk_write[w], plan.disk_write_gb[w]);
    set(columns.disk_read[w], plan.disk_read_gb[w]);
    set(columns.start[w], plan.start_s[w]);
  }
  set(columns.head, plan.head_s);
  set(columns.tail, mip.columns[static_cast<size_t>(columns.tail)].lower);
  fill_totals(values);
  return values;
}

void WindowProblem::fill_totals(std::vector<double>& values) const {
  for (const auto& [column, row] : totals) {
    double sum = 0;
    for (const auto& [entry, coefficient] : mip.rows[static_cast<size_t>(row)].entries) {
      if (entry != column) sum += coefficient * values[static_cast<size_t>(entry)];
    }
    values[static_cast<size_t>(column)] = sum - mip.rows[static_cast<size_t>(row)].lower;
  }
  for (const auto& [column, rows] : chained) {
    double least = 0;  // in each of its rows the column stands with 1
    for (const int row : rows) {
      double others = 0;
      for (const auto& [entry, coefficient] : mip.rows[static_cast<size_t>(row)].entries) {
        if (entry != column) others += coefficient * values[static_cast<size_t>(entry)];
      }
      least = std::max(least, mip.rows[static_cast<size_t>(row)].lower - others);
    }
    values[static_cast<size_t>(column)] = least;
  }
}

}  // namespace lazytrain::plan
