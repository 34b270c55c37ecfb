// What a run prints at its end: time by op, predicted against measured, peak memory.
#pragma once

#include <filesystem>
#include <vector>

#include "hw/profile.h"
#include "plan/program.h"
#include "plan/timeline.h"
#include "runtime/unit_runner.h"

namespace lazytrain::train {

struct RunSummary {
  const plan::Program& program;
  const runtime::OpProfile& profile;
  const hw::Profile& machine;
  const plan::Timeline& predicted;
  const std::vector<double>& step_seconds;
  const std::vector<plan::LaneSummary>& lanes;  // by step
  int64_t skipped = 0;
  std::filesystem::path model;
};

void print_summary(const RunSummary& summary);  // to stderr

}  // namespace lazytrain::train
