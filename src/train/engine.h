// The plan in force with what runs it: the memory of its tiers, the state in it and the executor.
#pragma once

#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "graph/graph.h"
#include "runtime/executor.h"
#include "runtime/model_state.h"
#include "train/planning.h"

namespace lazytrain::train {

class Engine {
 public:
  // Graph and pool outlive it. Throws what TierMemory throws.
  Engine(const graph::Graph& graph, const Workers& workers, ThreadPool& pool, PlannedRun planned);
  ~Engine();

  runtime::ModelState& state() { return parts_->state; }
  const runtime::ModelState& state() const { return parts_->state; }
  runtime::Executor& executor() { return *executor_; }
  const plan::Program& program() const { return executor_->program(); }
  const PlannedRun& planned() const { return planned_; }  // its program is program()'s
  runtime::OpProfile profile() const;                     // of all plans so far

  // Goes on with another plan of the same run: the state is carried to its places, bit for bit, with no more memory
  // than the larger of both plans and a unit take. Between steps, without a pending update. Empty when it is done; else
  // why it cannot be, and nothing has changed. Throws RunError when a disk fails under way: the state is lost then.
  std::string change(PlannedRun next);

 private:
  // In this order: the state lies in the memory.
  struct Parts {
    Parts(const graph::Graph& graph, const plan::Program& program, const runtime::DiskOptions* disk);
    runtime::TierMemory memory;
    runtime::ModelState state;
  };

  std::unique_ptr<Parts> parts_for(const PlannedRun& planned) const;
  void start_executor(plan::Program program);

  const graph::Graph& graph_;
  Workers workers_;
  ThreadPool& pool_;
  ThreadPool host_pool_;
  PlannedRun planned_;
  runtime::OpProfile profile_;  // of the plans before this one
  std::unique_ptr<Parts> parts_;
  std::unique_ptr<runtime::Executor> executor_;
};

}  // namespace lazytrain::train
