#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "plan/mip/paper_problem.h"

namespace lazytrain::plan {
namespace {

constexpr int kMaxLayers = kMaxPaperLayers;
constexpr double kMaxNumber = 1e7;

void check_number(double value, const std::string& where, std::string_view key) {
  if (!(value >= 0 && value <= kMaxNumber)) {
    throw InputError("{}: \"{}\" is {}, expected a number from 0 to {}", where, key, value, kMaxNumber);
  }
}

void check_numbers(const std::vector<double>& values, int count, const std::string& where, std::string_view key) {
  if (values.size() != static_cast<size_t>(count)) {
    throw InputError("{}: \"{}\" has {} entries, expected {}", where, key, values.size(), count);
  }
  for (size_t i = 0; i < values.size(); ++i) check_number(values[i], where, fmt::format("{}[{}]", key, i));
}

const Json& value_at(const JsonObject& object, std::string_view key) {
  const auto it = object.json().find(key);
  if (it == object.json().end()) throw InputError("{}: the key \"{}\" is missing", object.where(), key);
  return *it;
}

const Json& list_at(const JsonObject& object, std::string_view key) {
  const Json& list = value_at(object, key);
  if (!list.is_array() || list.size() > kMaxLayers + 1) {
    throw InputError("{}: \"{}\" must be a list of at most {} numbers", object.where(), key, kMaxLayers + 1);
  }
  return list;
}

std::vector<double> numbers_at(const JsonObject& object, std::string_view key, int count) {
  if (value_at(object, key).is_number()) {
    return std::vector<double>(static_cast<size_t>(count), object.number(key));
  }
  std::vector<double> numbers;
  for (const Json& value : list_at(object, key)) {
    if (!value.is_number()) {
      throw InputError("{}: \"{}\"[{}] is {}, expected a number", object.where(), key, numbers.size(),
                       shown(value.dump(), 40));
    }
    numbers.push_back(value.get<double>());
  }
  return numbers;
}

std::vector<int> indices_at(const JsonObject& object, std::string_view key) {
  std::vector<int> indices;
  for (const Json& value : list_at(object, key)) {
    const bool is_index = value.is_number_integer() && value.get<double>() >= 0 && value.get<double>() <= kMaxLayers;
    if (!is_index) {
      throw InputError("{}: \"{}\"[{}] is {}, expected the number of a boundary", object.where(), key, indices.size(),
                       shown(value.dump(), 40));
    }
    indices.push_back(value.get<int>());
  }
  return indices;
}

// The per-layer members with their keys, in the order of the file.
template <typename I, typename F>
void each_vector(I& instance, F&& f) {
  f("boundary_gb", instance.boundary_gb, 1);
  f("recompute_ms", instance.recompute_ms, 0);
  f("out_window_ms", instance.out_window_ms, 0);
  f("back_window_ms", instance.back_window_ms, 0);
  f("gradient_gb", instance.gradient_gb, 0);
  f("parameter_gb", instance.parameter_gb, 0);
}

void check_fixed(const PaperInstance& in, const PaperFixed& fixed, const std::string& where) {
  const auto ends = [&](const std::vector<int>& list, std::string_view key) {
    if (list.empty() || list.front() != 0 || list.back() != in.layers ||
        std::adjacent_find(list.begin(), list.end(), std::greater_equal<>()) != list.end()) {
      throw InputError("{}: \"fixed.{}\" must ascend from 0 to {}", where, key, in.layers);
    }
  };
  ends(fixed.checkpoints, "checkpoints");
  ends(fixed.device, "device");
  for (size_t i = 1; i < fixed.checkpoints.size(); ++i) {
    const int length = fixed.checkpoints[i] - fixed.checkpoints[i - 1];
    if (length <= in.max_block) continue;
    throw InputError("{}: \"fixed.checkpoints\" leaves {} layers between {} and {}; max_block is {}", where, length,
                     fixed.checkpoints[i - 1], fixed.checkpoints[i], in.max_block);
  }
  if (!std::includes(fixed.checkpoints.begin(), fixed.checkpoints.end(), fixed.device.begin(), fixed.device.end())) {
    throw InputError("{}: \"fixed.device\" names boundaries that \"fixed.checkpoints\" does not", where);
  }
}

}  // namespace

void check_paper_instance(const PaperInstance& in, const std::string& where) {
  if (in.layers < 1 || in.layers > kMaxLayers) {
    throw InputError("{}: \"layers\" is {}, expected 1 to {}", where, in.layers, kMaxLayers);
  }
  if (in.max_block < 1) throw InputError("{}: \"max_block\" is {}, expected at least 1", where, in.max_block);
  each_vector(in, [&](const char* key, const std::vector<double>& values, int more) {
    check_numbers(values, in.layers + more, where, key);
  });
  const auto rate = [&](double value, std::string_view key, bool needed) {
    check_number(value, where, fmt::format("links_gbs.{}", key));
    if (needed && value < 1e-6) {
      throw InputError("{}: \"links_gbs.{}\" is {}, expected GB/s above 0", where, key, value);
    }
  };
  const bool disk = in.budget_gb.disk > 0;
  rate(in.links_gbs.h2d, "h2d", true);
  rate(in.links_gbs.d2h, "d2h", true);
  rate(in.links_gbs.disk_read, "disk_read", disk);
  rate(in.links_gbs.disk_write, "disk_write", disk);
  check_number(in.budget_gb.device, where, "budget_gb.device");
  check_number(in.budget_gb.host, where, "budget_gb.host");
  check_number(in.budget_gb.disk, where, "budget_gb.disk");
  check_number(in.checkpoint_price, where, "checkpoint_price");
  check_number(in.disk_price, where, "disk_price");
  if (!(in.gap >= 0 && in.gap < 1)) throw InputError("{}: \"gap\" is {}, expected 0 to below 1", where, in.gap);
  if (in.fixed) check_fixed(in, *in.fixed, where);
}

bool is_paper_instance(const Json& json) {
  const auto it = json.is_object() ? json.find("formulation") : json.end();
  return it != json.end() && it->is_string() && it->get<std::string>() == "paper";
}

PaperInstance paper_instance_from_json(const Json& json, const std::string& where) {
  const JsonObject object(json, where);
  if (object.string("formulation") != "paper") {
    throw InputError("{}: \"formulation\" is '{}', expected 'paper'", where, shown(object.string("formulation")));
  }
  PaperInstance in;
  in.name = object.string_or("name", "");
  in.layers = static_cast<int>(object.integer("layers", 1, kMaxLayers));
  in.max_block = static_cast<int>(object.integer("max_block", 1, 1 << 20));
  each_vector(in, [&](const char* key, std::vector<double>& values, int more) {
    values = numbers_at(object, key, in.layers + more);
  });
  const JsonObject links = object.object("links_gbs"), budget = object.object("budget_gb");
  in.links_gbs = {links.number("h2d"), links.number("d2h"), 0, links.number_or("disk_read", 0),
                  links.number_or("disk_write", 0)};
  in.budget_gb = {budget.number("device"), budget.number("host"), budget.number_or("disk", 0)};
  in.checkpoint_price = object.number_or("checkpoint_price", in.checkpoint_price);
  in.disk_price = object.number_or("disk_price", in.disk_price);
  in.gap = object.number_or("gap", in.gap);
  if (object.has("fixed")) {
    const JsonObject fixed = object.object("fixed");
    in.fixed = PaperFixed{indices_at(fixed, "checkpoints"), indices_at(fixed, "device")};
  }
  check_paper_instance(in, where);
  return in;
}

Json to_json(const PaperInstance& in) {
  Json json = {{"name", in.name}, {"formulation", "paper"}, {"layers", in.layers}};
  each_vector(in, [&](const char* key, const std::vector<double>& values, int) { json[key] = values; });
  json["links_gbs"] = {{"h2d", in.links_gbs.h2d},
                       {"d2h", in.links_gbs.d2h},
                       {"disk_read", in.links_gbs.disk_read},
                       {"disk_write", in.links_gbs.disk_write}};
  json["budget_gb"] = {{"device", in.budget_gb.device}, {"host", in.budget_gb.host}, {"disk", in.budget_gb.disk}};
  json["max_block"] = in.max_block;
  json["checkpoint_price"] = in.checkpoint_price;
  json["disk_price"] = in.disk_price;
  json["gap"] = in.gap;
  if (in.fixed) json["fixed"] = {{"checkpoints", in.fixed->checkpoints}, {"device", in.fixed->device}};
  return json;
}

Json to_json(const PaperInstance& instance, const PaperPlan& plan) {
  Json boundaries = Json::array();
  for (const auto& home : plan.homes) boundaries.push_back(home ? Json(name_of(*home)) : Json());
  Json transfers = Json::object();
  const std::array<const char*, kPaperLanes> names = {"d2h", "h2d", "disk_write", "disk_read"};
  for (size_t lane = 0; lane < names.size(); ++lane) {
    Json moves = Json::array();
    for (const PaperMove& m : plan.transfers[lane]) {
      moves.push_back({{"boundary", m.boundary}, {"window", m.window}, {"gb", m.gb}});
    }
    transfers[names[lane]] = std::move(moves);
  }
  return {{"objective", plan.objective},         {"recompute_ms", plan.recompute_ms},
          {"exposed_ms", plan.exposed_ms},       {"mandatory_exposed_ms", mandatory_exposed_ms(instance)},
          {"boundaries", std::move(boundaries)}, {"transfers", std::move(transfers)}};
}

std::string describe(const PaperInstance& instance, const PaperPlan& plan) {
  std::string map;
  for (const auto& home : plan.homes) map += !home ? '.' : "DHN"[static_cast<size_t>(*home)];
  return fmt::format(
      "boundaries: {}  (D device, H host, N disk, . recomputed)\n"
      "            {} device, {} host, {} disk, {} recomputed\n"
      "recomputed {:.4f} ms, exposed {:.4f} ms, besides {:.2f} ms that weights and gradients alone expose\n",
      map, plan.count(Tier::kDevice), plan.count(Tier::kHost), plan.count(Tier::kDisk), plan.count(std::nullopt),
      plan.recompute_ms, plan.exposed_ms, mandatory_exposed_ms(instance));
}

}  // namespace lazytrain::plan
