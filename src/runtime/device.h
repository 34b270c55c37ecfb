// What runs the device's lanes of a program elsewhere than on their threads.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "graph/graph.h"
#include "ops/op.h"
#include "optim/grad_norm.h"
#include "plan/program.h"
#include "plan/timeline.h"
#include "runtime/tier_memory.h"
#include "runtime/unit_runner.h"

namespace lazytrain::runtime {

struct PendingUpdate;

// What a step leaves behind: the device fills in what its instructions made.
struct DeviceResults {
  std::span<ops::LossSum> losses;                      // by micro-batch
  std::vector<std::vector<optim::GradientSum>>& sums;  // by unit, parameter
  std::vector<plan::Span>& spans;                      // by instruction, seconds since begin()
};

// A lane is a stream. The thread of a lane issues its instructions in program order and does not wait for them; what
// one stream needs of another it waits for on the device, and only the host's own lanes wait with their threads.
class Device {
 public:
  virtual ~Device() = default;

  virtual bool takes(plan::Lane lane) const = 0;
  // What follows belongs to this step, with the arguments of Executor::run_step. They live to its end.
  virtual void begin(std::span<const ops::Tokens> micro_batches, const PendingUpdate* update,
                     const PendingUpdate* early) = 0;
  // From the thread of the instruction's lane, when everything it depends on has been issued (by the device) or has
  // ended (on the host). `binding` and `scratch` are those of compute instructions.
  virtual void issue(int instruction, const UnitBinding& binding, std::span<std::byte> scratch) = 0;
  // The calling thread waits until it has ended. Throws what went wrong on the device.
  virtual void wait_for(int instruction) = 0;
  // Waits for everything that was issued.
  virtual void end(const DeviceResults& results) = 0;
  // The same when the step has failed already: throws nothing.
  virtual void abandon() noexcept = 0;
};

using DeviceMaker =
    std::function<std::unique_ptr<Device>(const graph::Graph&, const plan::Program&, const TierMemory&)>;

}  // namespace lazytrain::runtime
