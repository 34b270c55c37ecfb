// lazytrain doctor: what this machine offers, and what about it costs speed or memory.
#include <dnnl.h>
#include <fmt/ranges.h>

#include <array>
#include <filesystem>

#include "base/error.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/output.h"
#include "hw/machine_info.h"
#include "hw/profile.h"
#include "ops/gemm.h"
#include "runtime/cuda_plugin.h"
#include "train/planning.h"

namespace lazytrain::cli {
namespace {

struct DoctorArgs {
  bool json = false;
};

// The instruction sets that kernels choose by.
constexpr std::array<std::string_view, 8> kFeatures = {"avx2",        "fma",         "f16c",     "avx512f",
                                                       "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_tile"};

struct Report {
  Json json = Json::object();
  Table table;
  std::vector<std::string> notes;

  void add(std::string_view key, std::string_view name, Json value, std::string_view text) {
    json[std::string(key)] = std::move(value);
    table.add(name, text);
  }
};

std::string size_or(int64_t bytes, std::string_view otherwise) {
  return bytes < 0 ? std::string(otherwise) : format_bytes(bytes);
}
Json number_or_null(int64_t value) { return value < 0 ? Json(nullptr) : Json(value); }

void report_cpu(const hw::MachineInfo& info, Report& report) {
  std::vector<std::string_view> present;
  for (const std::string_view feature : kFeatures) {
    if (info.cpu_flags.contains(std::string(feature))) present.push_back(feature);
  }
  const bool native = ops::preferred_gemm_strategy() == ops::GemmStrategy::kNative;
  report.add("cpu", "CPU", info.cpu_model, info.cpu_model.empty() ? "unknown" : info.cpu_model);
  report.add("cpu_features", "instruction sets", present, fmt::format("{}", fmt::join(present, " ")));
  report.add("cores_online", "cores", info.cores_online, fmt::format("{} online", info.cores_online));
  const int threads = train::threads_of({});
  report.add("threads", "threads", threads, fmt::format("{} (cores this process may run on)", threads));
  report.add("cpu_quota", "CPU quota", info.cpu_quota < 0 ? Json(nullptr) : Json(info.cpu_quota),
             info.cpu_quota < 0 ? "none" : fmt::format("{:.2f} cores", info.cpu_quota));
  report.add("gemm", "bf16 matrix products", native ? "native" : "widen",
             native ? "bf16 instructions" : "widened to fp32 in blocks");
  if (info.cpu_quota > 0 && info.cpu_quota < threads) {
    report.notes.push_back(fmt::format("the cgroup grants {:.2f} cores to {} threads: set device.threads to that",
                                       info.cpu_quota, threads));
  }
  if (!info.cpu_flags.empty() && !info.cpu_flags.contains("avx2")) {
    report.notes.emplace_back("no AVX2: kernels fall back to narrower vectors and are several times slower");
  }
}

void report_memory(const hw::MachineInfo& info, Report& report) {
  const int64_t available = hw::available_memory();
  report.add("memory_total", "memory", number_or_null(info.memory_total), size_or(info.memory_total, "unknown"));
  report.add("memory_available", "available", available, format_bytes(available) + " (what plans may take)");
  report.add("memory_limit", "cgroup limit", number_or_null(info.memory_limit), size_or(info.memory_limit, "none"));
  report.add("memlock_limit", "lockable memory", number_or_null(info.memlock_limit),
             size_or(info.memlock_limit, "no limit"));
  report.add("transparent_huge_pages", "transparent huge pages", info.transparent_huge_pages,
             info.transparent_huge_pages.empty() ? "unknown" : info.transparent_huge_pages);
  report.add("huge_pages", "reserved huge pages", number_or_null(info.huge_pages), fmt::format("{}", info.huge_pages));
  if (info.transparent_huge_pages == "never") {
    report.notes.emplace_back(
        "transparent huge pages are off: large arenas cost more page faults and TLB misses; "
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
  }
}

void report_rest(Report& report) {
  const dnnl_version_t* dnnl = ::dnnl_version();
  const std::string version = fmt::format("{}.{}.{}", dnnl->major, dnnl->minor, dnnl->patch);
  report.add("onednn", "oneDNN", version, version);
  std::error_code error;
  const auto space = std::filesystem::space(".", error);
  const int64_t free = error ? -1 : static_cast<int64_t>(space.available);
  report.add("disk_free", "free disk here", number_or_null(free), size_or(free, "unknown"));
  report.add("devices", "devices", Json::array({"cpu"}), "cpu");
}

// The card that could be used, or why there is none.
void report_cuda(Report& report) {
  try {
    const runtime::CudaPlugin& plugin = runtime::load_cuda_plugin();
    const cuda::DeviceProperties card = plugin.open_card(0)->properties();
    const std::string libraries = plugin.libraries();
    report.add("cuda", "CUDA card",
               {{"name", card.name},
                {"total_bytes", card.total_bytes},
                {"free_bytes", card.free_bytes},
                {"compute_capability", card.compute_capability},
                {"libraries", libraries}},
               fmt::format("{}, {} of {} free; {}", card.name, format_bytes(card.free_bytes),
                           format_bytes(card.total_bytes), libraries));
    report.notes.emplace_back(
        "the CUDA device (device.kind: cuda) is written and tested without a card: check its losses against the CPU's");
  } catch (const Error& error) {
    report.add("cuda", "CUDA card", nullptr, fmt::format("none: {}", error.what()));
  }
}

int doctor(const DoctorArgs& args) {
  Report report;
  const hw::MachineInfo info = hw::machine_info();
  report_cpu(info, report);
  report_memory(info, report);
  report_rest(report);
  report_cuda(report);
  report.json["notes"] = report.notes;
  std::string text = report.table.text();
  for (const std::string& note : report.notes) text += "note: " + note + "\n";
  print(args.json, report.json, text);
  return 0;
}

}  // namespace

void add_doctor(CLI::App& app, Chosen& chosen) {
  auto args = std::make_shared<DoctorArgs>();
  CLI::App* command = add_command(app, chosen, "doctor", "Say what this machine offers", args, doctor);
  command->add_flag("--json", args->json, "Print it as an object");
}

}  // namespace lazytrain::cli
