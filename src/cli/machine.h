// The machine that a plan is for.
#pragma once

#include <string>

#include "base/dtype.h"
#include "base/thread_pool.h"
#include "hw/profile.h"
#include "plan/program.h"

namespace lazytrain::cli {

// `this` is measured now; anything else is a name of the library or a profile's file (hw::find_profile). Throws
// UsageError when it is neither.
hw::Profile machine_of(const std::string& profile, DType compute);

// How programs are compiled for the CPU device: with the scratch of its kernels on this many threads.
plan::CompileOptions compile_options(DType compute, int threads);

}  // namespace lazytrain::cli
