#include "train/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "runtime/carry_state.h"

namespace lazytrain::train {
namespace {

// Why the state cannot be carried within the budgets; empty when it can.
std::string lacks_room(const graph::Graph& graph, const plan::Program& from, const PlannedRun& to) {
  plan::Program both;  // of the sizes that both have at once
  both.one_memory = to.program.one_memory;
  both.tier_bytes = runtime::carry_bytes(graph, from, to.program);
  if (plan::fits(both, to.budgets)) return "";
  return fmt::format(
      "the state of both plans at once takes up to {} of device, {} of host, {} of disk, which is more "
      "than there is",
      format_bytes(both.tier_bytes[0]), format_bytes(both.tier_bytes[1]), format_bytes(both.tier_bytes[2]));
}

}  // namespace

Engine::Parts::Parts(const graph::Graph& graph, const plan::Program& program, const runtime::DiskOptions* disk)
    : memory(runtime::TierMemory::of(program, disk)),
      state(graph, program.gradient, program.state, memory, program.moments) {}

Engine::Engine(const graph::Graph& graph, const Workers& workers, ThreadPool& pool, PlannedRun planned)
    : graph_(graph),
      workers_(workers),
      pool_(pool),
      host_pool_(std::max(1, workers.host)),
      planned_(std::move(planned)),
      parts_(parts_for(planned_)) {
  start_executor(std::move(planned_.program));
}

Engine::~Engine() = default;

std::unique_ptr<Engine::Parts> Engine::parts_for(const PlannedRun& planned) const {
  return std::make_unique<Parts>(graph_, planned.program, planned.disk ? &*planned.disk : nullptr);
}

void Engine::start_executor(plan::Program program) {
  executor_ = std::make_unique<runtime::Executor>(
      graph_, std::move(program), parts_->memory, pool_,
      runtime::ExecutorOptions{.host_pool = workers_.host > 0 ? &host_pool_ : nullptr,
                               .cores = workers_.cores,
                               .rates = planned_.rates ? &*planned_.rates : nullptr});
}

runtime::OpProfile Engine::profile() const {
  runtime::OpProfile sum = profile_;
  runtime::add(sum, executor_->profile());
  return sum;
}

std::string Engine::change(PlannedRun next) {
  if (std::string why_not = lacks_room(graph_, program(), next); !why_not.empty()) return why_not;
  std::unique_ptr<Parts> parts;
  try {
    parts = parts_for(next);
  } catch (const Infeasible& error) {
    return error.what();
  } catch (const RunError& error) {
    return error.what();
  }
  runtime::add(profile_, executor_->profile());
  runtime::carry_state({program(), parts_->memory, parts_->state}, parts->state);
  executor_.reset();
  parts_ = std::move(parts);
  planned_ = std::move(next);
  start_executor(std::move(planned_.program));
  return "";
}

}  // namespace lazytrain::train
