// Training runs of a benchmark: each a process of its own, its summary kept so that a second call goes on where the
// first one stopped.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace lazytrain::bench {

class TrainingRuns {
 public:
  // `words`: PROGRAM LAZYTRAIN FOLDER [--seconds N] [--only TEXT]. After N seconds no further run is started; with TEXT
  // only runs whose names hold it are.
  explicit TrainingRuns(const std::vector<std::string>& words);

  const std::filesystem::path& folder() const { return folder_; }
  // A model of that configuration with random weights, made once.
  std::filesystem::path model(const std::string& name, const Json& config);
  // RUN/summary.json of `lazytrain train` with these keys on rows that are full; empty when it has not run and is not
  // to be started. A run that fails is told on standard error, with its last lines, and gives null.
  std::optional<Json> run(const std::string& name, const std::filesystem::path& model,
                          const std::vector<std::string>& keys);
  // Of a run that has a summary: RUN/plan.json.
  Json plan_of(const std::string& name) const;
  int left() const { return left_; }  // runs that were not started

 private:
  std::filesystem::path data();

  std::filesystem::path lazytrain_, folder_;
  double until_s_ = 0;
  std::string only_;
  int left_ = 0;
};

// The share of a step that a lane is busy, in percent.
double busy_percent(const Json& step, const std::string& lane);

}  // namespace lazytrain::bench
