#include "optim/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace lazytrain::optim {
namespace {

constexpr std::array<std::pair<ScheduleKind, std::string_view>, 3> kNames = {
    {{ScheduleKind::kConstant, "constant"}, {ScheduleKind::kLinear, "linear"}, {ScheduleKind::kCosine, "cosine"}}};

double factor_at(ScheduleKind kind, int64_t index, int64_t warmup, int64_t total) {
  const auto span = [](int64_t steps) { return static_cast<double>(std::max<int64_t>(1, steps)); };
  if (index < warmup) return static_cast<double>(index) / span(warmup);
  switch (kind) {
    case ScheduleKind::kConstant:
      return 1.0;
    case ScheduleKind::kLinear:
      return std::max(0.0, static_cast<double>(total - index) / span(total - warmup));
    case ScheduleKind::kCosine: {
      const double progress = static_cast<double>(index - warmup) / span(total - warmup);
      return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
    }
  }
  return 1.0;
}

}  // namespace

ScheduleKind schedule_kind_from_name(std::string_view name) {
  std::vector<std::string> known;
  for (const auto& [kind, text] : kNames) {
    if (text == name) return kind;
    known.emplace_back(text);
  }
  const std::string near = nearest(name, known);
  throw UsageError("optimizer.schedule: '{}' is unknown; expected constant, linear or cosine{}", name,
                   near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near));
}

std::string_view name_of(ScheduleKind kind) {
  for (const auto& [known, text] : kNames) {
    if (known == kind) return text;
  }
  return "?";
}

void check(const Schedule& schedule) {
  if (!(std::isfinite(schedule.lr) && schedule.lr >= 0.0)) {
    throw UsageError("optimizer.lr: {} is not a finite number >= 0; use a value such as 1e-5", schedule.lr);
  }
  if (!(std::isfinite(schedule.warmup) && schedule.warmup >= 0.0)) {
    throw UsageError("optimizer.warmup: {} is not a finite number >= 0; give steps (from 1 on) or a ratio below 1",
                     schedule.warmup);
  }
}

int64_t warmup_steps(double warmup, int64_t total_steps) {
  const double steps = warmup >= 1.0 ? warmup : std::ceil(static_cast<double>(total_steps) * warmup);
  // More steps than any run has; keeps the conversion defined.
  constexpr double kMost = 1e15;
  return static_cast<int64_t>(std::min(steps, kMost));
}

double lr_at(const Schedule& schedule, int64_t index, int64_t total_steps) {
  return schedule.lr * factor_at(schedule.kind, index, warmup_steps(schedule.warmup, total_steps), total_steps);
}

}  // namespace lazytrain::optim
