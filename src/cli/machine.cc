#include "cli/machine.h"

#include "base/error.h"
#include "runtime/executor.h"
#include "runtime/probe.h"
#include "train/planning.h"

namespace lazytrain::cli {
namespace {

constexpr int64_t kMaxProfileBytes = 1 << 20;

}  // namespace

hw::Profile machine_of(const std::string& profile, DType compute) {
  if (profile == "this") {
    ThreadPool pool(train::threads_of({}));
    return runtime::measure_this_machine(pool, compute, true);
  }
  if (!std::filesystem::is_regular_file(profile)) {
    throw UsageError(
        "--profile: '{}' is neither a profile nor a file. There is `this` (this machine, measured now), and "
        "files that `lazytrain profile --out FILE` writes.",
        profile);
  }
  hw::Profile machine = hw::profile_from_json(read_json(profile, kMaxProfileBytes), profile);
  if (!machine.one_memory) {
    throw UsageError(
        "{}: \"one_memory\" is false: this version plans for machines whose device and host are one memory", profile);
  }
  return machine;
}

plan::CompileOptions compile_options(DType compute, int threads) {
  return {.compute = compute, .scratch_bytes = [threads](const graph::OpKind& kind, const graph::Dims& dims) {
            return runtime::Executor::scratch_bytes(kind, dims, threads);
          }};
}

}  // namespace lazytrain::cli
