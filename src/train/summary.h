// What a run prints at its end: time by op, predicted against measured, peak memory.
#pragma once

#include <filesystem>

#include "hw/profile.h"
#include "plan/program.h"
#include "plan/timeline.h"
#include "runtime/unit_runner.h"
#include "train/step_times.h"

namespace lazytrain::train {

struct RunSummary {
  const plan::Program& program;  // the last one
  const runtime::OpProfile& profile;
  const hw::Profile& machine;
  const plan::Timeline& predicted;
  const StepTimes& times;
  int64_t skipped = 0;
  std::filesystem::path model;
};

void print_summary(const RunSummary& summary);  // to stderr

}  // namespace lazytrain::train
