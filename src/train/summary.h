// What a run says at its end: time by op, predicted against measured, peak memory; on the terminal and in a file.
#pragma once

#include <filesystem>

#include "base/json.h"
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
  std::array<int64_t, 3> peak_bytes = {0, 0, 0};  // by tier, what steps used
  int64_t process_bytes = 0;                      // planned beside the program's tiers
  int64_t skipped = 0;
  std::filesystem::path model;
};

void print_summary(const RunSummary& summary);  // to stderr

// {steps, predicted, measured}, each of the latter {step_s, exposed_s, lanes: {NAME: {busy_s}}, peak_bytes: {TIER},
// memory_bytes}: medians of the steps behind the first of this process, which updates nothing and takes its memory for
// the first time. memory_bytes: of the whole process.
Json to_json(const RunSummary& summary);

}  // namespace lazytrain::train
