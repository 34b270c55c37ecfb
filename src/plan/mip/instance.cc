#include "plan/mip/instance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace lazytrain::plan {
namespace {

constexpr int kMaxUnits = 4096;
constexpr size_t kMaxMenu = 64;
constexpr int kMostPieces = 4096;
constexpr size_t kMaxNames = 256;  // of one retained set
// The largest number that is taken: a year in seconds, 10 PB in GB. Beyond that solvers lose the small ones.
constexpr double kMaxNumber = 1e7;

const Json& array_at(const JsonObject& object, std::string_view key, size_t max) {
  const auto it = object.json().find(key);
  if (it == object.json().end()) throw InputError("{}: the key \"{}\" is missing", object.where(), key);
  if (!it->is_array()) throw InputError("{}: \"{}\" is {}, expected a list", object.where(), key, it->type_name());
  if (it->size() > max) {
    throw InputError("{}: \"{}\" has {} entries, at most {} are taken", object.where(), key, it->size(), max);
  }
  return *it;
}

std::vector<double> numbers_at(const JsonObject& object, std::string_view key) {
  std::vector<double> numbers;
  for (const Json& value : array_at(object, key, kMaxUnits)) {
    if (!value.is_number()) {
      throw InputError("{}: \"{}\"[{}] is {}, expected a number", object.where(), key, numbers.size(),
                       shown(value.dump(), 40));
    }
    numbers.push_back(value.get<double>());
  }
  return numbers;
}

void check_number(double value, const std::string& where, std::string_view key) {
  if (!(value >= 0 && value <= kMaxNumber)) {
    throw InputError("{}: \"{}\" is {}, expected a number from 0 to {}", where, key, value, kMaxNumber);
  }
}

void check_numbers(const std::vector<double>& values, int units, const std::string& where, std::string_view key) {
  if (values.size() != static_cast<size_t>(units)) {
    throw InputError("{}: \"{}\" has {} entries, expected {}, one a unit", where, key, values.size(), units);
  }
  for (size_t i = 0; i < values.size(); ++i) check_number(values[i], where, fmt::format("{}[{}]", key, i));
}

MenuEntry entry_from(const Json& json, const std::string& where) {
  const JsonObject object(json, where);
  MenuEntry entry;
  for (const Json& name : array_at(object, "retained", kMaxNames)) {
    if (!name.is_string()) throw InputError("{}: \"retained\" must be a list of names", where);
    entry.retained.push_back(name.get<std::string>());
  }
  entry.retained_gb = object.number("retained_gb");
  entry.recompute_s = object.number("recompute_s");
  entry.workspace_gb = object.number("workspace_gb");
  return entry;
}

std::vector<std::vector<MenuEntry>> menu_from(const JsonObject& object) {
  std::vector<std::vector<MenuEntry>> menu;
  for (const Json& list : array_at(object, "menu", kMaxUnits)) {
    const std::string where = fmt::format("{}: menu[{}]", object.where(), menu.size());
    if (!list.is_array() || list.empty() || list.size() > kMaxMenu) {
      throw InputError("{}: expected a list of 1 to {} retained sets", where, kMaxMenu);
    }
    std::vector<MenuEntry> entries;
    for (const Json& entry : list) entries.push_back(entry_from(entry, fmt::format("{}[{}]", where, entries.size())));
    menu.push_back(std::move(entries));
  }
  return menu;
}

void check_menu(const std::vector<MenuEntry>& menu, const std::string& where) {
  if (menu.empty() || menu.size() > kMaxMenu) {
    throw InputError("{}: has {} retained sets, expected 1 to {}", where, menu.size(), kMaxMenu);
  }
  if (!menu[0].retained.empty() || menu[0].retained_gb != 0) {
    throw InputError("{}[0]: retains something; entry 0 is the one that retains nothing", where);
  }
  for (size_t i = 0; i < menu.size(); ++i) {
    const std::string entry = fmt::format("{}[{}]", where, i);
    check_number(menu[i].retained_gb, entry, "retained_gb");
    check_number(menu[i].recompute_s, entry, "recompute_s");
    check_number(menu[i].workspace_gb, entry, "workspace_gb");
  }
}

void check_links(const Instance& instance, const std::string& where) {
  const LinkRates& links = instance.links_gbs;
  const auto rate = [&](double value, std::string_view key, bool needed) {
    check_number(value, where, fmt::format("links_gbs.{}", key));
    if (needed && value < 1e-6) {
      throw InputError("{}: \"links_gbs.{}\" is {}, but there is traffic on this link: expected GB/s above 0", where,
                       key, value);
    }
  };
  const bool disk = instance.budget_gb.disk > 0;
  rate(links.h2d, "h2d", true);
  rate(links.d2h, "d2h", true);
  rate(links.joint, "joint", true);
  rate(links.disk_read, "disk_read", disk);
  rate(links.disk_write, "disk_write", disk);
}

std::optional<ReferenceSolution> reference_from(const JsonObject& object) {
  if (!object.has("reference")) return {};
  const JsonObject reference = object.object("reference");
  ReferenceSolution out;
  out.solver = reference.string_or("solver", "");
  out.status = reference.string_or("status", "");
  out.step_s = reference.number_or("step_s", 0);
  out.gap = reference.number_or("gap", 0);
  out.seconds_2_cores = reference.number_or("seconds_2_cores", 0);
  return out;
}

// What of the file stands in sub-objects or may be left out.
void read_objects(const JsonObject& object, Instance& instance) {
  const JsonObject head = object.object("head"), links = object.object("links_gbs"),
                   budget = object.object("budget_gb");
  instance.head = {head.number("compute_s"), head.number("weight_gb"), head.number("grad_gb")};
  instance.links_gbs = {links.number("h2d"), links.number("d2h"), links.number("joint"), links.number("disk_read"),
                        links.number("disk_write")};
  instance.budget_gb = {budget.number("device"), budget.number("host"), budget.number("disk")};
  if (object.has("host_state_gb")) instance.host_state_gb = numbers_at(object, "host_state_gb");
  if (object.has("host_weight_gb")) instance.host_weight_gb = numbers_at(object, "host_weight_gb");
  instance.disk_weights = object.boolean_or("disk_weights", true);
  instance.disk_activations = object.boolean_or("disk_activations", true);
  instance.state_pieces = static_cast<int>(object.integer_or("state_pieces", 1, 1, kMostPieces));
  instance.sets_leave_behind = object.boolean_or("sets_leave_behind", false);
  instance.update_in_backward = object.boolean_or("update_in_backward", false);
  if (object.has("accumulate_s")) instance.accumulate_s = numbers_at(object, "accumulate_s");
  instance.chase = object.boolean_or("chase", true);
  instance.embedding_update_s = object.number_or("embedding_update_s", 0);
  instance.head_update_s = object.number_or("head_update_s", 0);
  instance.lead_s = object.number_or("lead_s", 0);
  instance.tail_s = object.number_or("tail_s", 0);
  instance.host_end_gb = object.number_or("host_end_gb", 0);
  instance.reference = reference_from(object);
}

// The per-unit members with their keys, in the order of the file.
template <typename I, typename F>
void each_vector(I& instance, F&& f) {
  f("forward_s", instance.forward_s);
  f("backward_s", instance.backward_s);
  f("boundary_gb", instance.boundary_gb);
  f("weight_gb", instance.weight_gb);
  f("grad_gb", instance.grad_gb);
  f("update_s", instance.update_s);
  f("device_home_gb", instance.device_home_gb);
  f("device_update_s", instance.device_update_s);
  f("forward_workspace_gb", instance.forward_workspace_gb);
}

}  // namespace

double Instance::bound_s() const {
  const auto sum = [](const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0); };
  return lead_s + sum(forward_s) + sum(backward_s) + head.compute_s + tail_s;
}

double Instance::stored_in_backward_s(size_t u) const {
  return accumulate_s.empty() || u < 2 ? 0 : std::min(accumulate_s[u], backward_s[u - 2]);
}

double Instance::staged_s() const {
  double most = 0;
  for (size_t u = 0; u < host_state_gb.size(); ++u) {
    most = std::max(most, host_state_gb[u] + (disk_weights ? host_weight_gb[u] : 0));
  }
  return staged_share() * most / std::min(links_gbs.disk_read, links_gbs.disk_write);
}

void check_instance(const Instance& instance, const std::string& where) {
  if (instance.units < 1 || instance.units > kMaxUnits) {
    throw InputError("{}: \"units\" is {}, expected 1 to {}", where, instance.units, kMaxUnits);
  }
  each_vector(instance,
              [&](const char* key, const std::vector<double>& v) { check_numbers(v, instance.units, where, key); });
  if (instance.menu.size() != static_cast<size_t>(instance.units)) {
    throw InputError("{}: \"menu\" has {} entries, expected {}, one a unit", where, instance.menu.size(),
                     instance.units);
  }
  for (size_t u = 0; u < instance.menu.size(); ++u) check_menu(instance.menu[u], fmt::format("{}: menu[{}]", where, u));
  check_number(instance.head.compute_s, where, "head.compute_s");
  check_number(instance.head.weight_gb, where, "head.weight_gb");
  check_number(instance.head.grad_gb, where, "head.grad_gb");
  check_number(instance.budget_gb.device, where, "budget_gb.device");
  check_number(instance.budget_gb.host, where, "budget_gb.host");
  check_number(instance.budget_gb.disk, where, "budget_gb.disk");
  check_number(instance.embedding_update_s, where, "embedding_update_s");
  check_number(instance.head_update_s, where, "head_update_s");
  check_number(instance.lead_s, where, "lead_s");
  check_number(instance.tail_s, where, "tail_s");
  check_number(instance.host_end_gb, where, "host_end_gb");
  check_links(instance, where);
  if (instance.max_block < 1)
    throw InputError("{}: \"max_block\" is {}, expected at least 1", where, instance.max_block);
  if (!(instance.gap >= 0 && instance.gap <= 1)) {
    throw InputError("{}: \"gap\" is {}, expected a number from 0 to 1", where, instance.gap);
  }
  if (instance.state_pieces < 1 || instance.state_pieces > kMostPieces) {
    throw InputError("{}: \"state_pieces\" is {}, expected 1 to {}", where, instance.state_pieces, kMostPieces);
  }
  if (!instance.accumulate_s.empty()) check_numbers(instance.accumulate_s, instance.units, where, "accumulate_s");
  if (instance.host_state_gb.empty() && instance.host_weight_gb.empty()) return;
  check_numbers(instance.host_state_gb, instance.units, where, "host_state_gb");
  check_numbers(instance.host_weight_gb, instance.units, where, "host_weight_gb");
}

Instance instance_from_json(const Json& json, const std::string& where) {
  const JsonObject object(json, where);
  if (object.has("formulation") && object.string("formulation") != "lazytrain") {
    throw InputError("{}: \"formulation\" is '{}', expected 'lazytrain'", where, shown(object.string("formulation")));
  }
  Instance instance;
  instance.name = object.string_or("name", "");
  instance.units = static_cast<int>(object.integer("units", 1, kMaxUnits));
  instance.max_block = static_cast<int>(object.integer("max_block", 1, 1 << 20));
  instance.gap = object.number("gap");
  each_vector(instance, [&](const char* key, std::vector<double>& v) { v = numbers_at(object, key); });
  instance.menu = menu_from(object);
  read_objects(object, instance);
  check_instance(instance, where);
  return instance;
}

Json to_json(const Instance& instance) {
  Json json = {{"name", instance.name}, {"formulation", "lazytrain"}, {"units", instance.units}};
  each_vector(instance, [&](const char* key, const std::vector<double>& v) { json[key] = v; });
  Json menu = Json::array();
  for (const auto& entries : instance.menu) {
    Json list = Json::array();
    for (const auto& e : entries) {
      list.push_back({{"retained", e.retained},
                      {"retained_gb", e.retained_gb},
                      {"recompute_s", e.recompute_s},
                      {"workspace_gb", e.workspace_gb}});
    }
    menu.push_back(std::move(list));
  }
  json["menu"] = std::move(menu);
  const LinkRates& links = instance.links_gbs;
  json["head"] = {{"compute_s", instance.head.compute_s},
                  {"weight_gb", instance.head.weight_gb},
                  {"grad_gb", instance.head.grad_gb}};
  json["links_gbs"] = {{"h2d", links.h2d},
                       {"d2h", links.d2h},
                       {"joint", links.joint},
                       {"disk_read", links.disk_read},
                       {"disk_write", links.disk_write}};
  json["budget_gb"] = {
      {"device", instance.budget_gb.device}, {"host", instance.budget_gb.host}, {"disk", instance.budget_gb.disk}};
  json["max_block"] = instance.max_block;
  json["gap"] = instance.gap;
  if (instance.has_disk_homes()) {
    json["host_state_gb"] = instance.host_state_gb;
    json["host_weight_gb"] = instance.host_weight_gb;
    if (!instance.disk_weights) json["disk_weights"] = false;
    if (instance.state_pieces != 1) json["state_pieces"] = instance.state_pieces;
  }
  if (!instance.disk_activations) json["disk_activations"] = false;
  if (instance.sets_leave_behind) json["sets_leave_behind"] = true;
  if (instance.update_in_backward) json["update_in_backward"] = true;
  if (!instance.accumulate_s.empty()) json["accumulate_s"] = instance.accumulate_s;
  if (!instance.chase) json["chase"] = false;
  if (instance.embedding_update_s > 0) json["embedding_update_s"] = instance.embedding_update_s;
  if (instance.head_update_s > 0) json["head_update_s"] = instance.head_update_s;
  if (instance.lead_s > 0) json["lead_s"] = instance.lead_s;
  if (instance.tail_s > 0) json["tail_s"] = instance.tail_s;
  if (instance.host_end_gb > 0) json["host_end_gb"] = instance.host_end_gb;
  if (instance.reference) {
    json["reference"] = {{"solver", instance.reference->solver},
                         {"status", instance.reference->status},
                         {"step_s", instance.reference->step_s},
                         {"gap", instance.reference->gap},
                         {"seconds_2_cores", instance.reference->seconds_2_cores}};
  }
  return json;
}

}  // namespace lazytrain::plan
