// lazytrain version: this program, its compiler and the libraries it was built with.
#include <dnnl_version.h>
#include <fmt/format.h>
#include <spdlog/version.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/output.h"

namespace lazytrain::cli {
namespace {

struct VersionArgs {
  bool json = false;
};

#ifdef __clang__
constexpr std::string_view kCompiler = "clang " __clang_version__;
#else
constexpr std::string_view kCompiler = "gcc " __VERSION__;
#endif

int version(const VersionArgs& args) {
  const Json libraries = {
      {"oneDNN", fmt::format("{}.{}.{}", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH)},
      {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
      {"spdlog", fmt::format("{}.{}.{}", SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR, SPDLOG_VER_PATCH)},
      {"nlohmann-json",
       fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
      {"CLI11", CLI11_VERSION}};
  std::string text = fmt::format("lazytrain {}\ncompiler: {}\n", LAZYTRAIN_VERSION, kCompiler);
  for (const auto& [name, number] : libraries.items()) text += fmt::format("{}: {}\n", name, number.get<std::string>());
  print(args.json, {{"version", LAZYTRAIN_VERSION}, {"compiler", kCompiler}, {"libraries", libraries}}, text);
  return 0;
}

}  // namespace

void add_version(CLI::App& app, Chosen& chosen) {
  auto args = std::make_shared<VersionArgs>();
  CLI::App* command = add_command(app, chosen, "version", "Print the version", args, version);
  command->add_flag("--json", args->json, "Print {version, compiler, libraries}");
}

}  // namespace lazytrain::cli
