// Runs a Program on the bytes of its tiers.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "ops/op.h"
#include "optim/adamw.h"
#include "optim/grad_norm.h"
#include "plan/program.h"
#include "plan/timeline.h"
#include "runtime/device.h"
#include "runtime/lanes.h"
#include "runtime/throttle.h"
#include "runtime/tier_memory.h"
#include "runtime/unit_runner.h"

namespace lazytrain::runtime {

// The update that belongs to the gradients of a step: it runs at the head of the next one, chased by its forward, or
// alone (finish_update); under a policy's update_in_backward the first part of it within the step.
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

// How lanes are run beside what the program says.
struct ExecutorOptions {
  // Threads of the host lane; null: the compute lane's. Emulated machines have their own, as card and host do.
  ThreadPool* host_pool = nullptr;
  LaneCores cores;
  const LaneRates* rates = nullptr;  // of an emulated machine; null: as fast as this one is
  DeviceMaker device = {};           // of what runs the device's lanes; empty: their threads, with the CPU's kernels
};

class Executor {
 public:
  // Scratch bytes of the CPU kernels, for plan::CompileOptions.
  static int64_t scratch_bytes(const graph::OpKind& kind, const graph::Dims& dims, int threads);

  // The program must have passed plan::validate and `memory` have its tiers' bytes; graph, memory and pools outlive the
  // executor. Nothing is allocated for a buffer from here on.
  Executor(const graph::Graph& graph, plan::Program program, TierMemory& memory, ThreadPool& pool,
           const ExecutorOptions& options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  const plan::Program& program() const { return program_; }

  // One step: the pending update (null: none), then forward, loss and backward of the micro-batches, whose token counts
  // are at most the program's dims. Gradients stay in the state's home for the next update. An exception of a lane
  // stops all lanes and is thrown here; the weights are then those before or after the pending update, unit by unit.
  // `early` is this step's own update, of which backward does what the program says: it is given for programs whose
  // policy has update_in_backward, and only for those. The rest of it is the next call's `update`, or finish_update's.
  StepResult run_step(std::span<const ops::Tokens> micro_batches, const PendingUpdate* update,
                      const PendingUpdate* early = nullptr);
  void finish_update(const PendingUpdate& update);

  const OpProfile& profile() const { return profile_; }  // of all steps so far

 private:
  void bind(const plan::Instruction& instruction);
  void bind_parameters(const plan::Instruction& instruction, const plan::Use& use, UnitBinding& binding) const;
  bool is_early(const plan::Instruction& instruction) const;
  const PendingUpdate* update_of(const plan::Instruction& instruction) const;
  bool belongs_to_update(const plan::Instruction& instruction) const;
  const plan::Buffer& buffer(const plan::Use& use) const { return program_.buffers[static_cast<size_t>(use.buffer)]; }
  std::byte* address(const plan::Use& use) const;
  ThreadPool& pool_of(plan::Lane lane) const;
  void paced(plan::Lane lane, int64_t bytes, const std::function<void(int64_t begin, int64_t end)>& copy);

  const std::vector<plan::Span>& run_lanes(const std::function<bool(int)>& takes);
  void held(int instruction, const std::function<void()>& work);
  void execute(int instruction);
  void compute(const plan::Instruction& instruction);
  // executor_state.cc
  void copy_in(const plan::Instruction& instruction);
  void move(const plan::Instruction& instruction);
  void disk_transfer(const plan::Instruction& instruction);
  void accumulate(const plan::Instruction& instruction);
  void update(const plan::Instruction& instruction);
  void update_parameters(const plan::Instruction& instruction, const PendingUpdate& update,
                         const plan::StatePiece& piece, const std::array<std::byte*, 4>& parts);

  const graph::Graph& graph_;
  plan::Program program_;
  TierMemory& memory_;
  ThreadPool& pool_;
  ThreadPool& host_pool_;
  std::vector<double> host_seconds_;         // of an emulated machine, by instruction
  std::unique_ptr<Throttle> throttle_;       // null: none
  DiskStore::Channel* disk_read_ = nullptr;  // of memory_
  DiskStore::Channel* disk_write_ = nullptr;
  std::vector<UnitBinding> bindings_;                     // by instruction, made once
  std::vector<std::vector<plan::PieceMoments>> moments_;  // by unit, piece
  std::vector<std::span<std::byte>> scratch_;
  std::array<OpProfile, plan::kLanes> lane_profile_;
  OpProfile profile_;

  // Of the step that runs.
  std::span<const ops::Tokens> micro_batches_;
  const PendingUpdate* pending_ = nullptr;
  const PendingUpdate* early_ = nullptr;
  std::vector<ops::LossSum> losses_;                   // by micro-batch
  std::vector<std::vector<optim::GradientSum>> sums_;  // by unit, parameter
  std::vector<plan::Span> spans_;                      // with those of the device
  std::unique_ptr<Device> device_;                     // null: none
  std::unique_ptr<Lanes> lanes_;                       // last: its threads use all of the above
};

}  // namespace lazytrain::runtime
