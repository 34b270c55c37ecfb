// The progress line: live on a terminal, plain lines otherwise. It goes to stderr.
#pragma once

#include <cstdint>
#include <string>

#include "train/metrics.h"

namespace lazytrain::train {

class Progress {
 public:
  // `gemm_flops`: the measured rate that MFU is taken against.
  Progress(int64_t first_step, int64_t total_steps, int64_t every, double gemm_flops);
  ~Progress();

  void step(const StepMetrics& metrics);
  // Ends the live line, so that other output starts on a line of its own.
  void pause();

 private:
  std::string line(const StepMetrics& metrics) const;

  int64_t total_;
  int64_t every_;
  double gemm_flops_;
  bool terminal_;
  bool open_ = false;       // a live line stands on the terminal
  double mean_step_s_ = 0;  // exponential mean, for the ETA
  int64_t last_shown_ = 0;
};

}  // namespace lazytrain::train
