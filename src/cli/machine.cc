#include "cli/machine.h"

#include "runtime/executor.h"
#include "runtime/probe.h"
#include "train/planning.h"

namespace lazytrain::cli {

hw::Profile machine_of(const std::string& profile, DType compute) {
  if (profile == "this") {
    ThreadPool pool(train::threads_of({}));
    return runtime::measure_this_machine(pool, compute, true);
  }
  return hw::find_profile(profile);
}

plan::CompileOptions compile_options(DType compute, int threads) {
  return {.compute = compute, .scratch_bytes = [threads](const graph::OpKind& kind, const graph::Dims& dims) {
            return runtime::Executor::scratch_bytes(kind, dims, threads);
          }};
}

}  // namespace lazytrain::cli
