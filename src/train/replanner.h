// Plans a run again while it goes on, in the background, and changes its plan between steps where that is worth it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "train/background.h"
#include "train/engine.h"
#include "train/planning.h"
#include "train/replan.h"
#include "train/run_config.h"

namespace lazytrain::train {

// What a person, and metrics.jsonl, should know of it.
struct ReplanEvent {
  std::string words;
  Json metrics;          // {action: "started" | "kept" | "changed", ...}; null: only for the log
  bool changed = false;  // another plan is in force
};

class Replanner {
 public:
  // All outlive it.
  Replanner(const RunConfig& config, const graph::Graph& graph, Engine& engine, int threads);

  // Behind a step, before the next: takes its timeline, and starts planning, keeps the plan or changes it.
  // `finish_update` runs a pending update, before state is moved. `whole` as for Calibration::observe.
  std::optional<ReplanEvent> after_step(const plan::Timeline& timeline, bool whole,
                                        const std::function<void()>& finish_update);
  // Gives up what goes on in the background; returns soon.
  void stop() { background_.reset(); }

  const plan::Measurements& measurements() const { return calibration_.measurements(); }

 private:
  std::optional<ReplanEvent> start();
  ReplanEvent decide(const std::function<void()>& finish_update);
  ReplanEvent kept(const std::string& why, const Json& figures = Json::object()) const;
  ReplanEvent change(PlannedRun found, double present_s, const std::function<void()>& finish_update);

  const RunConfig& config_;
  const graph::Graph& graph_;
  Engine& engine_;
  int threads_;
  ReplanLimits limits_;
  Calibration calibration_;
  bool told_ = false;  // that a plan which the user chose stays
  std::unique_ptr<Background<std::optional<PlannedRun>>> background_;
};

}  // namespace lazytrain::train
