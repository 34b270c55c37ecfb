// A training run from configuration to exported model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "train/run_config.h"

namespace lazytrain::train {

struct TrainOptions {
  bool resume = false;   // go on from the newest complete checkpoint of `output`, or start when there is none
  bool dry_run = false;  // print plan, memory table and predicted step time; touch nothing
};

struct TrainResult {
  int exit_code = 0;  // 0: all steps are done and the model is written; 130: a signal stopped the run after saving
  int64_t steps = 0;  // done, those before a resumption included
  int64_t total_steps = 0;
  std::optional<double> loss;  // of the last step done by this process
  std::optional<double> eval_loss;
  int64_t skipped = 0;               // steps whose gradient was not finite
  std::filesystem::path checkpoint;  // the last one
  std::filesystem::path model;       // empty when the run was stopped
  std::string policy;                // of the plan
  double predicted_step_s = 0;
};

// A dry run ends behind the plan: only policy and predicted_step_s are set. Throws UsageError, InputError, Infeasible
// or RunError. Once it has returned with exit code 0, SIGINT and SIGTERM are ignored: nothing is left to interrupt.
TrainResult run_training(const RunConfig& config, const TrainOptions& options);

}  // namespace lazytrain::train
