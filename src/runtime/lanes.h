// The lanes of a program as threads: each runs its instructions in program order, held only by the dependencies that
// the program names.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "plan/program.h"
#include "plan/timeline.h"

namespace lazytrain::runtime {

// The cores that a lane's thread may run on, by lane; an empty list: all of the process.
using LaneCores = std::array<std::vector<int>, plan::kLanes>;

class Lanes {
 public:
  // `execute` runs an instruction on its lane's thread. The program outlives the lanes.
  Lanes(const plan::Program& program, std::function<void(int)> execute, const LaneCores& cores);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // Runs all instructions for which `takes` is true (empty: all) and returns when every lane is through, with the time
  // of each; what is not run counts as ended at once. An exception of one stops all lanes and is thrown here.
  const std::vector<plan::Span>& run(const std::function<bool(int)>& takes);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lazytrain::runtime
