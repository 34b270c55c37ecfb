// Learning-rate schedules with linear warm-up, as in transformers' get_scheduler.
#pragma once

#include <cstdint>
#include <string_view>

namespace lazytrain::optim {

enum class ScheduleKind : uint8_t { kConstant, kLinear, kCosine };

struct Schedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  double lr = 0.0;      // the peak
  double warmup = 0.0;  // from 1 on a number of steps, below 1 a ratio of the run's steps
};

// "constant", "linear" or "cosine"; anything else is a UsageError with the nearest name.
ScheduleKind schedule_kind_from_name(std::string_view name);
std::string_view name_of(ScheduleKind kind);

// Throws UsageError that names the key: optimizer.lr and optimizer.warmup are finite numbers >= 0.
void check(const Schedule& schedule);

// Steps of warm-up in a run of total_steps: trunc(warmup) when warmup >= 1, else ceil(total_steps * warmup)
// (TrainingArguments.get_warmup_steps).
int64_t warmup_steps(double warmup, int64_t total_steps);

// The rate of schedule index `index` (>= 0): step k, counted from 1, uses index k - 1. With W steps of warm-up, T
// total:
//   index < W:  lr * index / max(1, W)
//   constant:   lr
//   linear:     lr * max(0, (T - index) / max(1, T - W))
//   cosine:     lr * max(0, (1 + cos(pi * (index - W) / max(1, T - W))) / 2)
double lr_at(const Schedule& schedule, int64_t index, int64_t total_steps);

}  // namespace lazytrain::optim
