// Measures this machine.
#pragma once

#include "base/dtype.h"
#include "base/thread_pool.h"
#include "hw/profile.h"

namespace lazytrain::runtime {

// Rates of `pool` on this machine, with the kernels that training uses: matrix products of a training step in `compute`
// (bf16 or fp32), memory streams, the fused optimizer pass. `quick`: under half a second, for a prediction. Else some
// ten seconds: also products and attention by size, copies in memory each way and both at once, and a source for every
// figure. Device and host are one memory: both sizes are what this process may still take. Throws RunError when the
// memory for the probe (some 300 MB) is not there.
hw::Profile measure_this_machine(ThreadPool& pool, DType compute, bool quick);

}  // namespace lazytrain::runtime
