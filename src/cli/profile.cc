// lazytrain profile: measures this machine.
#include "hw/profile.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/compute.h"
#include "cli/output.h"
#include "runtime/probe.h"
#include "train/planning.h"

namespace lazytrain::cli {
namespace {

struct ProfileArgs {
  std::string out;
  std::string disk;
  std::string compute = "bf16";
  bool json = false;
};

int profile_command(const ProfileArgs& args) {
  if (!args.disk.empty()) {
    throw UsageError("--disk: this version keeps nothing on disk and does not measure one. Leave it out.");
  }
  ThreadPool pool(train::threads_of({}));
  const hw::Profile profile = runtime::measure_this_machine(pool, parse_compute(args.compute), false);
  const Json json = hw::to_json(profile);
  if (!args.out.empty()) write_file(args.out, json.dump(2) + "\n");
  Table table;
  table.add("threads", fmt::format("{}", pool.threads()));
  table.add("matrix products", fmt::format("{:.1f} GFLOPS ({})", profile.gemm_flops / 1e9, args.compute));
  table.add("memory", fmt::format("{:.1f} GB/s", profile.memory_bandwidth / 1e9));
  table.add("optimizer", fmt::format("{:.1f} GB/s", profile.host_bandwidth / 1e9));
  table.add("launch", format_seconds(profile.launch_s));
  table.add("available", format_bytes(profile.host_bytes));
  print(args.json, json, table.text());
  return 0;
}

}  // namespace

void add_profile(CLI::App& app, Chosen& chosen) {
  auto args = std::make_shared<ProfileArgs>();
  CLI::App* command = add_command(app, chosen, "profile", "Measure this machine", args, profile_command);
  command->add_option("--out", args->out, "File for the profile (JSON)")->required();
  command->add_option("--disk", args->disk, "")->group("");
  command->add_option("--compute", args->compute, "bf16 or fp32")->capture_default_str();
  command->add_flag("--json", args->json, "Print the profile");
}

}  // namespace lazytrain::cli
