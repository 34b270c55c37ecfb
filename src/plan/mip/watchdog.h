// Solvers on threads of their own, so that one which does not keep its time limit costs nobody else's time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "plan/mip/solver.h"

namespace lazytrain::plan {

// What a solver's thread and the thread that waits for it share. It lives as long as either does.
class SolverTask {
 public:
  // Called by the solver. Solutions that are no better than what is known, and smaller bounds, change nothing.
  void improve(const std::vector<double>& values, double objective);
  void raise_bound(double bound);
  void end(MipStatus status, std::string words);
  bool should_stop() const { return stop_; }

 private:
  friend MipResult run_watched(const std::function<void(SolverTask&)>& solve, const std::vector<double>& start,
                               double start_objective, double limit_s, double grace_s, std::stop_token stop);
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::condition_variable_any ended_;
  bool has_ended_ = false;
  MipResult result_;
};

// Runs `solve` on a thread of its own for at most limit_s or until `stop` is asked for, then asks it to stop and waits
// for grace_s more; after that it goes on without it, with the best solution and bound so far. `solve` must own all
// that it touches. A thread that is left behind does not keep the process from ending, with its exit status.
MipResult run_watched(const std::function<void(SolverTask&)>& solve, const std::vector<double>& start,
                      double start_objective, double limit_s, double grace_s, std::stop_token stop = {});

}  // namespace lazytrain::plan
