// metrics.jsonl, a line a step, and TensorBoard event files beside it when asked for.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/json.h"
#include "plan/words.h"
#include "train/append_file.h"

namespace lazytrain::train {

struct StepMetrics {
  int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  int64_t tokens = 0;  // of this step, padding never counts
  double tok_per_s = 0;
  double flops = 0;  // that its matrix products need, for the progress line alone
  double step_s = 0;
  double exposed_s = 0;
  std::array<double, plan::kLanes> busy_s = {};  // by lane
  int64_t peak_device_bytes = 0;
  int64_t peak_host_bytes = 0;
  int64_t peak_disk_bytes = 0;
  bool skipped = false;  // its gradient was not finite
  std::optional<double> eval_loss;
  double predicted_step_s = 0;  // of the plan that ran it
  double predicted_exposed_s = 0;
  Json replan;  // what was done about the plan behind this step; null: nothing
};
Json to_json(const StepMetrics& metrics);

class TensorBoardWriter;

// Appends; lines of steps after `resume_step` are cut off first (a killed run may have written more than it saved).
class MetricsWriter {
 public:
  // `tell` gets what a person must know of trouble while writing. Throws RunError when the files cannot be made.
  MetricsWriter(const std::filesystem::path& folder, int64_t resume_step, bool tensorboard, AppendFile::Tell tell);
  ~MetricsWriter();
  // A full disk ends no run: see AppendFile.
  void write(const StepMetrics& metrics);

 private:
  std::unique_ptr<AppendFile> lines_;
  std::unique_ptr<TensorBoardWriter> tensorboard_;
};

}  // namespace lazytrain::train
