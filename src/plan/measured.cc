#include "plan/measured.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "base/error.h"
#include "plan/timeline.h"

namespace lazytrain::plan {
namespace {

// Of a transfer's time: with less of it beside the other direction it counts as alone, with more as both at once.
constexpr double kAlone = 0.1, kTogether = 0.9;
constexpr int64_t kMaxCount = int64_t{1} << 50;
constexpr double kMaxSeconds = 1e12;
constexpr int64_t kMaxUnit = int64_t{1} << 20;

void take(Measured& sum, double seconds, double analytic_s) {
  ++sum.count;
  sum.seconds += seconds;
  sum.analytic_s += analytic_s;
}

void merge(Measured& sum, const Measured& other) {
  sum.count += other.count;
  sum.seconds += other.seconds;
  sum.analytic_s += other.analytic_s;
}

using Intervals = std::vector<std::pair<double, double>>;  // ascending, apart

// How much of [begin, end) lies in `busy`.
double covered(const Intervals& busy, double begin, double end) {
  auto it = std::upper_bound(busy.begin(), busy.end(), begin, [](double t, const auto& i) { return t < i.second; });
  double sum = 0;
  for (; it != busy.end() && it->first < end; ++it) sum += std::min(end, it->second) - std::max(begin, it->first);
  return sum;
}

template <typename Enum, size_t N>
Enum enum_at(const JsonObject& object, std::string_view key, const std::array<std::string_view, N>& names) {
  const std::string name = object.string(key);
  const auto it = std::find(names.begin(), names.end(), name);
  if (it == names.end()) throw InputError("{}: \"{}\" is '{}', which it cannot be", object.where(), key, shown(name));
  return static_cast<Enum>(it - names.begin());
}

Json figures(const Measured& m) { return {{"count", m.count}, {"seconds", m.seconds}, {"analytic_s", m.analytic_s}}; }

Measured figures_at(const JsonObject& object) {
  Measured m{object.integer("count", 0, kMaxCount), object.number("seconds"), object.number("analytic_s")};
  for (const auto& [key, value] : {std::pair{"seconds", m.seconds}, {"analytic_s", m.analytic_s}}) {
    if (!(value >= 0 && value <= kMaxSeconds)) {
      throw InputError("{}: \"{}\" is {}, expected seconds, 0 or more", object.where(), key, value);
    }
  }
  return m;
}

template <typename F>
void each_entry(const JsonObject& object, const char* key, F&& f) {
  if (!object.has(key)) return;
  const Json& list = object.json().at(key);
  if (!list.is_array()) throw InputError("{}: \"{}\" is {}, expected a list", object.where(), key, list.type_name());
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonObject entry(list[i], fmt::format("{}: {}[{}]", object.where(), key, i));
    f(entry);
  }
}

}  // namespace

void Measurements::add(const graph::Graph& graph, const Program& program, const CostTable& analytic,
                       const Timeline& timeline) {
  if (timeline.spans.size() != program.instructions.size() || (steps_ > 0 && model_ != graph.fingerprint)) {
    throw std::logic_error("measured steps of another program or model");
  }
  model_ = graph.fingerprint;
  ++steps_;
  std::array<Intervals, kLanes> busy;
  for (const Span& span : timeline.spans) {
    if (!analytic.shares_link(span.instruction)) continue;
    busy[static_cast<size_t>(program.instructions[static_cast<size_t>(span.instruction)].lane)].emplace_back(
        span.start_s, span.end_s);
  }
  for (Intervals& intervals : busy) std::sort(intervals.begin(), intervals.end());
  for (const Span& span : timeline.spans) {
    const Instruction& i = program.instructions[static_cast<size_t>(span.instruction)];
    const double seconds = span.end_s - span.start_s, expected = analytic.seconds(span.instruction);
    if (!(expected > 0)) continue;
    if (i.action == Action::kCompute) {
      take(compute_[{i.unit, i.pass}], seconds, expected);
      continue;
    }
    if (analytic.shares_link(span.instruction)) {
      const Lane opposite = i.lane == Lane::kH2D ? Lane::kD2H : Lane::kH2D;
      const double shared = covered(busy[static_cast<size_t>(opposite)], span.start_s, span.end_s);
      if (shared > kTogether * seconds) take(joint_, seconds, expected / analytic.joint_share());
      if (shared > kAlone * seconds) continue;
    }
    take(other_[{i.action, i.lane}], seconds, expected);
  }
}

Measured Measurements::compute(const graph::Graph& graph, int unit, Pass pass) const {
  const auto sum_if = [&](const auto& belongs) {
    Measured sum;
    for (const auto& [key, measured] : compute_) {
      if (belongs(key.first, key.second)) merge(sum, measured);
    }
    return sum;
  };
  const auto is_alike = [&](int u) {
    const graph::Unit &a = graph.units.at(static_cast<size_t>(u)), &b = graph.units.at(static_cast<size_t>(unit));
    return a.kind == b.kind && a.block_elements == b.block_elements;
  };
  const auto exact = compute_.find({unit, pass});
  if (exact != compute_.end()) return exact->second;
  const Measured alike = sum_if([&](int u, Pass p) { return p == pass && is_alike(u); });
  if (alike.count > 0) return alike;
  return sum_if([&](int u, Pass) { return is_alike(u); });
}

Measured Measurements::other(Action action, Lane lane) const {
  const auto it = other_.find({action, lane});
  return it == other_.end() ? Measured() : it->second;
}

Measured Measurements::lane(Lane lane) const {
  Measured sum;
  for (const auto& [key, measured] : other_) {
    if (key.second == lane) merge(sum, measured);
  }
  return sum;
}

double Measurements::link_factor() const {
  Measured sum = lane(Lane::kH2D);
  merge(sum, lane(Lane::kD2H));
  return sum.factor();
}

double Measurements::joint_factor() const { return joint_.count > 0 ? joint_.factor() : link_factor(); }

Json to_json(const Measurements& measured) {
  Json compute = Json::array(), other = Json::array();
  for (const auto& [key, m] : measured.compute_) {
    Json entry = {{"unit", key.first}, {"pass", name_of(key.second)}};
    entry.update(figures(m));
    compute.push_back(std::move(entry));
  }
  for (const auto& [key, m] : measured.other_) {
    Json entry = {{"action", name_of(key.first)}, {"lane", name_of(key.second)}};
    entry.update(figures(m));
    other.push_back(std::move(entry));
  }
  return {{"kind", "measurements"}, {"model", measured.model_}, {"steps", measured.steps_},
          {"compute", compute},     {"other", other},           {"joint", figures(measured.joint_)}};
}

Measurements measurements_from_json(const Json& json, const std::string& where) {
  const JsonObject object(json, where);
  if (object.string("kind") != "measurements") {
    throw InputError("{}: \"kind\" is '{}', expected 'measurements'", where, shown(object.string("kind")));
  }
  Measurements measured;
  measured.model_ = object.string("model");
  measured.steps_ = object.integer("steps", 0, kMaxCount);
  each_entry(object, "compute", [&](const JsonObject& entry) {
    const auto unit = static_cast<int>(entry.integer("unit", 0, kMaxUnit));
    measured.compute_[{unit, enum_at<Pass>(entry, "pass", kPassNames)}] = figures_at(entry);
  });
  each_entry(object, "other", [&](const JsonObject& entry) {
    const auto action = enum_at<Action>(entry, "action", kActionNames);
    measured.other_[{action, enum_at<Lane>(entry, "lane", kLaneNames)}] = figures_at(entry);
  });
  if (object.has("joint")) measured.joint_ = figures_at(object.object("joint"));
  return measured;
}

void check_against(const Measurements& measured, const graph::Graph& graph, const std::string& where) {
  for (const auto& [key, m] : measured.compute_) {
    if (static_cast<size_t>(key.first) < graph.units.size()) continue;
    throw InputError("{}: measured unit {} of a model of {}", where, key.first, graph.units.size());
  }
  if (measured.model() == graph.fingerprint) return;
  throw InputError("{}: measured of a model with fingerprint '{}', this one's is '{}': measure this one", where,
                   shown(measured.model()), graph.fingerprint);
}

}  // namespace lazytrain::plan
