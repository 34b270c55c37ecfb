// A training run from configuration to exported model.
#pragma once

#include "train/run_config.h"

namespace lazytrain::train {

struct TrainOptions {
  bool resume = false;   // go on from the newest complete checkpoint of `output`, or start when there is none
  bool dry_run = false;  // print plan, memory table and predicted step time; touch nothing
};

// Returns the exit code: 0 when all steps are done and the model is written, 130 when a signal stopped the run after
// saving. Throws UsageError, InputError, Infeasible or RunError.
int run_training(const RunConfig& config, const TrainOptions& options);

}  // namespace lazytrain::train
