// lazytrain profile: measures this machine.
#include "hw/profile.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/compute.h"
#include "cli/output.h"
#include "runtime/probe.h"
#include "runtime/probe_disk.h"
#include "train/planning.h"

namespace lazytrain::cli {
namespace {

struct ProfileArgs {
  std::string out;
  std::string disk;
  std::string compute = "bf16";
  bool json = false;
};

// Measures the disk under `folder` into the profile. Without a request for it, a disk without room is left out.
void add_disk(const std::filesystem::path& folder, bool requested, hw::Profile& profile) {
  try {
    const runtime::DiskRates rates =
        runtime::measure_disk(folder, runtime::kDiskProbeBytes, runtime::kDiskProbeSeconds);
    profile.links.disk_read = rates.read;
    profile.links.disk_write = rates.write;
    profile.disk_bytes = rates.free_bytes;
    const std::string how = fmt::format("measured by lazytrain profile: blocks of 4 MiB{} in {}",
                                        rates.direct ? ", direct I/O," : " through the page cache",
                                        std::filesystem::absolute(folder).lexically_normal().string());
    profile.sources["links.disk_read"] = profile.sources["links.disk_write"] = how;
    profile.sources["disk_bytes"] = "room that was free when measured";
  } catch (const UsageError& error) {
    if (requested) throw;
    spdlog::warn("no disk is measured: {}", error.what());
  }
}

std::string disk_line(const hw::Profile& profile) {
  if (profile.disk_bytes == 0) return "none measured";
  return fmt::format("{:.2f} GB/s read, {:.2f} GB/s written, {} free", profile.links.disk_read / 1e9,
                     profile.links.disk_write / 1e9, format_bytes(profile.disk_bytes));
}

Table table_of(const hw::Profile& profile, int threads, const std::string& compute) {
  Table table;
  table.add("threads", fmt::format("{}", threads));
  table.add("matrix products", fmt::format("{:.1f} GFLOPS ({}), half at {:.0f} rows", profile.gemm_flops / 1e9, compute,
                                           profile.gemm_half_rows));
  table.add("attention", fmt::format("{:.1f} GFLOPS ({})", profile.attention_flops / 1e9, compute));
  table.add("memory", fmt::format("{:.1f} GB/s", profile.memory_bandwidth / 1e9));
  table.add("copies", fmt::format("{:.1f} GB/s, both ways at once {:.1f} GB/s",
                                  std::min(profile.links.h2d, profile.links.d2h) / 1e9, profile.links.joint / 1e9));
  table.add("optimizer", fmt::format("{:.1f} GB/s", profile.host_bandwidth / 1e9));
  table.add("disk", disk_line(profile));
  table.add("launch", format_seconds(profile.launch_s));
  table.add("available", format_bytes(profile.host_bytes));
  return table;
}

int profile_command(const ProfileArgs& args) {
  const DType compute = parse_compute(args.compute);
  std::filesystem::path folder = args.disk;
  if (args.disk.empty()) folder = std::filesystem::absolute(args.out).parent_path();
  if (!args.disk.empty()) runtime::free_disk_bytes(folder);  // before seconds of measuring
  ThreadPool pool(train::threads_of({}));
  hw::Profile profile = runtime::measure_this_machine(pool, compute, false);
  add_disk(folder, !args.disk.empty(), profile);
  const Json json = hw::to_json(profile);
  write_file(args.out, json.dump(2) + "\n");
  print(args.json, json, table_of(profile, pool.threads(), args.compute).text());
  return 0;
}

}  // namespace

void add_profile(CLI::App& app, Chosen& chosen) {
  auto args = std::make_shared<ProfileArgs>();
  CLI::App* command = add_command(app, chosen, "profile", "Measure this machine", args, profile_command);
  command->add_option("--out", args->out, "File for the profile (JSON)")->required();
  command->add_option("--disk", args->disk, "Folder on the disk to measure; without it, the folder of --out");
  command->add_option("--compute", args->compute, "bf16 or fp32")->capture_default_str();
  command->add_flag("--json", args->json, "Print the profile");
}

}  // namespace lazytrain::cli
