// Runs a Program: one thread a lane, each in program order, held only by the dependencies that the Program names.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "ops/op.h"
#include "optim/adamw.h"
#include "optim/grad_norm.h"
#include "plan/program.h"
#include "plan/timeline.h"
#include "runtime/arena.h"
#include "runtime/model_state.h"
#include "runtime/unit_runner.h"

namespace lazytrain::runtime {

// The update that belongs to gradients already stored: it runs at the head of the next step, chased by its forward,
// or alone (finish_update).
struct PendingUpdate {
  optim::AdamWOptions options;
  double lr = 0;
  int64_t number = 0;  // counts applied updates from 1
  double gradient_scale = 1;
};

// The sum of squares of one parameter's gradient.
struct ParameterGradient {
  int unit = 0;
  int parameter = 0;
  optim::GradientSum sum;
};

struct StepResult {
  ops::LossSum loss;                         // over all micro-batches, in their order
  std::vector<ParameterGradient> gradients;  // every parameter once, in the units' order
  plan::Timeline timeline;
};

class Executor {
 public:
  // Scratch bytes of the CPU kernels, for plan::CompileOptions.
  static int64_t scratch_bytes(const graph::OpKind& kind, const graph::Dims& dims, int threads);

  // The program must have passed plan::validate; graph, state and pool outlive the executor.
  Executor(const graph::Graph& graph, plan::Program program, ModelState& state, ThreadPool& pool);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  const plan::Program& program() const { return program_; }

  // One step: the pending update (null: none), then forward, loss and backward of the micro-batches, whose token counts
  // are at most the program's dims. Gradients stay in the ModelState for the next update. An exception of a lane stops
  // all lanes and is thrown here; the weights are then those before or after the pending update, unit by unit.
  StepResult run_step(std::span<const ops::Tokens> micro_batches, const PendingUpdate* update);
  void finish_update(const PendingUpdate& update);

  const OpProfile& profile() const { return profile_; }  // of all steps so far

 private:
  struct Lanes;
  void execute(int instruction);
  void compute(const plan::Instruction& instruction);
  void copy_in(const plan::Instruction& instruction);
  void accumulate(const plan::Instruction& instruction);
  void update(const plan::Instruction& instruction);
  std::byte* address(const plan::Use& use) const;

  const graph::Graph& graph_;
  plan::Program program_;
  ModelState& state_;
  ThreadPool& pool_;
  Arena device_;
  std::vector<UnitBinding> bindings_;  // by instruction, made once
  std::vector<std::span<std::byte>> scratch_;
  std::array<OpProfile, plan::kLanes> lane_profile_;
  OpProfile profile_;

  // Of the step that runs.
  std::span<const ops::Tokens> micro_batches_;
  const PendingUpdate* pending_ = nullptr;
  std::vector<ops::LossSum> losses_;                   // by micro-batch
  std::vector<std::vector<optim::GradientSum>> sums_;  // by unit, parameter
  std::vector<plan::Span> spans_;                      // by instruction
  std::unique_ptr<Lanes> lanes_;
};

}  // namespace lazytrain::runtime
