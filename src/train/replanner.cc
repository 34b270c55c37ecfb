#include "train/replanner.h"

#include <fmt/format.h>

#include <chrono>

#include "base/error.h"
#include "base/units.h"

namespace lazytrain::train {
namespace {

double exposed_of(const plan::Program& program, const plan::Timeline& timeline) {
  return plan::summarize(program, timeline).exposed_s;
}

}  // namespace

Replanner::Replanner(const RunConfig& config, const graph::Graph& graph, Engine& engine, int threads)
    : config_(config), graph_(graph), engine_(engine), threads_(threads), calibration_(graph, limits_) {
  const PlannedRun& planned = engine.planned();
  calibration_.begin(engine.program(), planned.machine, exposed_of(engine.program(), planned.predicted));
}

std::optional<ReplanEvent> Replanner::after_step(const plan::Timeline& timeline, bool whole,
                                                 const std::function<void()>& finish_update) {
  // Steps beside the solver are not measured: it takes time of theirs.
  const bool is_time = calibration_.observe(timeline, whole && !background_);
  if (background_ && background_->done()) return decide(finish_update);
  return is_time && config_.plan.replan ? start() : std::nullopt;
}

std::optional<ReplanEvent> Replanner::start() {
  calibration_.planning();
  const double step_s = calibration_.step_s();
  const std::string found =
      fmt::format("for {} steps compute has waited for {:.1f}% of the step instead of {:.1f}%", limits_.deviating_steps,
                  100 * calibration_.exposed_s() / step_s, 100 * calibration_.predicted_exposed_s() / step_s);
  if (!chooses_plan(config_)) {
    if (std::exchange(told_, true)) return std::nullopt;
    return ReplanEvent{
        fmt::format("{}; the plan stays, since plan.policy names it ({}): with plan.policy=auto it would "
                    "be planned again",
                    found, config_.plan.policy),
        nullptr};
  }
  PlannedRun base = engine_.planned();
  base.program = {};
  background_ = std::make_unique<Background<std::optional<PlannedRun>>>(
      [&config = config_, &graph = graph_, threads = threads_, base = std::move(base),
       measured = calibration_.measurements()](const std::stop_token& stop) {
        return plan_again(config, graph, base, threads, measured, stop);
      });
  return ReplanEvent{fmt::format("{}: planning again in the background with the times of {} steps", found,
                                 calibration_.measurements().steps()),
                     {{"action", "started"},
                      {"predicted_exposed_s", calibration_.predicted_exposed_s()},
                      {"measured_steps", calibration_.measurements().steps()}}};
}

ReplanEvent Replanner::kept(const std::string& why, const Json& figures) const {
  Json metrics = {{"action", "kept"}, {"why", why}};
  metrics.update(figures);
  return {"planned again: the plan stays: " + why, std::move(metrics)};
}

ReplanEvent Replanner::decide(const std::function<void()>& finish_update) {
  const auto background = std::move(background_);
  const plan::Timeline present = calibration_.simulate_measured();
  calibration_.expect(exposed_of(engine_.program(), present));
  std::optional<PlannedRun> found;
  try {
    found = background->take();
  } catch (const std::exception& error) {  // whatever it is, the run goes on as it did
    return kept(error.what());
  }
  if (!found) return kept("no other was found that fits");
  const double found_s = found->predicted.step_s;
  if (!is_worth_a_change(present.step_s, found_s, limits_)) {
    return kept(fmt::format("with measured times it takes {} a step, the best that was found {}; {:.0f}% less would be "
                            "worth a change",
                            format_seconds(present.step_s), format_seconds(found_s), 100 * limits_.least_gain),
                {{"present_step_s", present.step_s}, {"found_step_s", found_s}});
  }
  return change(std::move(*found), present.step_s, finish_update);
}

ReplanEvent Replanner::change(PlannedRun found, double present_s, const std::function<void()>& finish_update) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const double found_s = found.predicted.step_s;
  finish_update();
  const std::string before = engine_.program().policy.name;
  if (const std::string why_not = engine_.change(std::move(found)); !why_not.empty()) {
    return kept(why_not, {{"present_step_s", present_s}, {"found_step_s", found_s}});
  }
  const double took_s = std::chrono::duration<double>(Clock::now() - begin).count();
  const PlannedRun& planned = engine_.planned();
  calibration_.begin(engine_.program(), planned.machine, exposed_of(engine_.program(), planned.predicted));
  return {fmt::format("planned again: the plan changes from {} to {}: with measured times {} a step instead of {} "
                      "({:+.1f}%); moving the state took {}",
                      before, engine_.program().policy.name, format_seconds(found_s), format_seconds(present_s),
                      100 * (found_s / present_s - 1), format_seconds(took_s)),
          {{"action", "changed"},
           {"present_step_s", present_s},
           {"found_step_s", found_s},
           {"took_s", took_s},
           {"policy", engine_.program().policy.name}},
          true};
}

}  // namespace lazytrain::train
