// What steps took, beside what the analytic cost table says of them: the correction with which simulator and planner
// see a machine as it is. Fed with Timelines of the executor, kept as JSON beside the profile.
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>

#include "base/json.h"
#include "graph/graph.h"
#include "plan/program.h"

namespace lazytrain::plan {

class CostTable;
struct Timeline;

// Seconds of the same instructions, added up over steps.
struct Measured {
  int64_t count = 0;  // instructions
  double seconds = 0;
  double analytic_s = 0;
  // By how much longer it takes than the analytic table says; 1 where nothing was measured.
  double factor() const { return count > 0 && analytic_s > 0 && seconds > 0 ? seconds / analytic_s : 1; }
  friend bool operator==(const Measured&, const Measured&) = default;
};

// Compute is kept by unit and pass, everything else by action and lane. Transfers between device and host count only
// where the other direction was still for most of their time; those that shared the link for most of theirs give the
// joint rate.
class Measurements {
 public:
  // Adds one step. `analytic`: the table of the same program without measurements. Throws std::logic_error when the
  // timeline is not the program's.
  void add(const graph::Graph& graph, const Program& program, const CostTable& analytic, const Timeline& timeline);

  int64_t steps() const { return steps_; }
  const std::string& model() const { return model_; }

  // Of compute of `unit` in `pass`. A unit that was not measured is taken for the mean of those of its size, a pass
  // that was not for the mean of all their passes.
  Measured compute(const graph::Graph& graph, int unit, Pass pass) const;
  Measured other(Action action, Lane lane) const;
  Measured lane(Lane lane) const;  // all that is not compute
  // Transfers while both directions are busy, against the joint rate; without any they are as slow as alone.
  double joint_factor() const;
  double link_factor() const;  // alone, of both directions

  friend Json to_json(const Measurements& measured);
  friend Measurements measurements_from_json(const Json& json, const std::string& where);
  friend void check_against(const Measurements& measured, const graph::Graph& graph, const std::string& where);
  friend bool operator==(const Measurements&, const Measurements&) = default;

 private:
  std::string model_;  // graph fingerprint
  int64_t steps_ = 0;
  std::map<std::pair<int, Pass>, Measured> compute_;
  std::map<std::pair<Action, Lane>, Measured> other_;
  Measured joint_;
};

// {kind: "measurements", model, steps, compute: [{unit, pass, count, seconds, analytic_s}],
//  other: [{action, lane, count, seconds, analytic_s}], joint: {count, seconds, analytic_s}}
Json to_json(const Measurements& measured);
// Throws InputError naming the key.
Measurements measurements_from_json(const Json& json, const std::string& where);
// Throws InputError when they were taken of another model.
void check_against(const Measurements& measured, const graph::Graph& graph, const std::string& where);

}  // namespace lazytrain::plan
