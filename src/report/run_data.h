// What a report shows, gathered from a plan and, where there is one, a run folder.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "hw/profile.h"
#include "plan/program.h"
#include "plan/timeline.h"

namespace lazytrain::report {

// One bar on a lane.
struct Slice {
  std::string lane;
  std::string name;
  std::string kind;  // pass of compute, else the action: decides the colour
  double start_s = 0;
  double end_s = 0;
};

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // ascending in x
};

// A tile of the placement map.
struct Tile {
  std::string label;   // of the unit or boundary
  std::string kind;    // "unit" or "boundary"
  std::string state;   // words: what is kept; decides the colour together with the tier
  std::string tier;    // where
  std::string detail;  // shown on hover
};

struct MemoryLine {
  std::string tier;
  std::string purpose;
  int64_t bytes = 0;
};

struct PageData {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;
  std::string timeline_title;  // "predicted step" or "last step, measured"
  double step_s = 0;
  std::vector<Slice> slices;
  std::vector<Curve> memory;  // bytes over seconds, steps
  std::vector<Tile> tiles;
  std::vector<MemoryLine> table;
  std::vector<Curve> training;  // by step: loss, evaluation loss, grad norm, lr, ...
  std::vector<std::string> notes;
};

PageData page_of_plan(const plan::Program& program, const graph::Graph& graph, const plan::Timeline& predicted,
                      const hw::Profile& machine);

// Adds what lies in a run folder: metrics.jsonl, and the timeline of trace.json in place of the predicted one. A
// missing file is a note on the page; a broken one an InputError, except for a last metrics line cut short by a kill.
void add_run(const std::filesystem::path& run, PageData& page);

}  // namespace lazytrain::report
