// The CUDA device: a program's compute, h2d and d2h lanes as streams, its dependencies as events.
#pragma once

#include <memory>

#include "cuda/runtime.h"
#include "ops/cuda_ops.h"
#include "optim/cuda_kernels.h"
#include "runtime/device.h"

namespace lazytrain::runtime {

// What the plugin brings, or a test's stand-in for it. Everything outlives the devices made of it.
struct CudaServices {
  cuda::Runtime& runtime;
  const ops::CudaKernels& ops;
  const optim::CudaKernels& optim;
  ops::CudaLibraries& libraries;
};

// The memory of the device tier: exactly `bytes`, by one allocation, of which the first `zeroed_bytes` (the state) are
// zero. Throws RunError that says how much is free when the device refuses.
std::unique_ptr<DeviceMemory> make_cuda_memory(cuda::Runtime& runtime, int64_t bytes, int64_t zeroed_bytes);

// Of the device tier: the bytes of state that live across steps.
int64_t device_state_bytes(const plan::Program& program);

// Device memory beside the plan's: positions, targets and results of a step.
int64_t cuda_step_bytes(const plan::Program& program, const graph::Graph& graph);

// Throws UsageError for a program that does not keep device and host apart or computes in fp32, and for an op that has
// no kernel here. Pins the host's memory, piece by piece, until the system refuses: copies of the rest are slower, and
// the log says so.
std::unique_ptr<Device> make_cuda_device(const CudaServices& services, const graph::Graph& graph,
                                         const plan::Program& program, const TierMemory& memory);

}  // namespace lazytrain::runtime
