// A timeline as a trace that Perfetto (https://ui.perfetto.dev) and chrome://tracing show.
#pragma once

#include <filesystem>
#include <vector>

#include "base/json.h"
#include "graph/graph.h"
#include "plan/program.h"
#include "plan/timeline.h"

namespace lazytrain::plan {

// From `start_s` on, `bytes` of the tier are alive.
struct MemoryPoint {
  double start_s = 0;
  int64_t bytes = 0;
};
// A buffer lives from the start of the first instruction that uses it to the end of the last; state always does.
// Ascending, the first at 0, one point a change.
std::vector<MemoryPoint> bytes_over_time(const Program& program, const Timeline& timeline, Tier tier);

// Trace Event Format: a thread a lane, a slice an instruction (args: unit, pass, micro-batch), a counter a tier of what
// is alive. Times in microseconds.
Json trace_json(const Program& program, const graph::Graph& graph, const Timeline& timeline);

// Throws RunError when the file cannot be written.
void write_trace(const Program& program, const graph::Graph& graph, const Timeline& timeline,
                 const std::filesystem::path& path);

}  // namespace lazytrain::plan
