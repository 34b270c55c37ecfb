// The program: finds the subcommand, runs it, and maps what it throws to the exit code.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/output.h"

namespace lazytrain::cli {
namespace {

enum ExitCode : int { kDone = 0, kFailed = 1, kWrongUsage = 2, kInfeasible = 3 };

// A closed descriptor would be given to the next file that is opened, and results would be written into that.
void open_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) static_cast<void>(::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY));
  }
}

int fail(ExitCode code, const char* message) {
  std::fprintf(stderr, "error: %s\n", message);
  return code;
}

void add_commands(CLI::App& app, Chosen& chosen) {
  add_train(app, chosen);
  add_plan(app, chosen);
  add_simulate(app, chosen);
  add_profile(app, chosen);
  add_eval(app, chosen);
  add_generate(app, chosen);
  add_tokenize(app, chosen);
  add_chat_template(app, chosen);
  add_new_model(app, chosen);
  add_export(app, chosen);
  add_report(app, chosen);
  add_doctor(app, chosen);
  add_version(app, chosen);
}

// CLI11 would only say that a command is missing.
void require_known_command(CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](CLI::App*) { return true; }))
    names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), word) != names.end()) return;
  const std::string near = nearest(word, names);
  throw UsageError("'{}' is no command{}; see `lazytrain --help`", shown(word),
                   near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
}

// What is wrong with the command line. An argument that nobody knows is named before those that are missing: it is
// often one of them, misspelled.
std::string complaint(const CLI::App& app, const CLI::ParseError& error) {
  const auto commands = app.get_subcommands();
  const std::vector<std::string> unknown = app.remaining(true);
  if (commands.empty() || unknown.empty()) return error.what();
  std::vector<std::string> names;
  for (const CLI::Option* option : commands.front()->get_options()) names.push_back(option->get_name());
  const std::string near = nearest(unknown.front(), names);
  return fmt::format("unexpected argument {}{}", shown(unknown.front()),
                     near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
}

int run(int argc, char** argv) {
  CLI::App app("LazyTrain trains language models that are bigger than the device they train on.", "lazytrain");
  Chosen chosen;
  add_commands(app, chosen);
  app.add_flag("--version")->description("As the command version");
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 failed while running, 2 wrong usage or configuration, 3 the plan does not fit,\n"
      "130 interrupted after saving. `lazytrain COMMAND --help` explains a command.");
  std::vector<const char*> words(argv, argv + argc);
  if (argc > 1 && std::string_view(words[1]) == "--version") words[1] = "version";
  if (argc > 1 && words[1][0] != '-') require_known_command(app, words[1]);
  try {
    app.parse(argc, words.data());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error) == 0 ? kDone : kFailed;  // --help
    const std::string command = app.get_subcommands().empty() ? "" : " " + app.get_subcommands().front()->get_name();
    return fail(kWrongUsage, fmt::format("{}; see `lazytrain{} --help`", complaint(app, error), command).c_str());
  }
  return chosen();
}

}  // namespace
}  // namespace lazytrain::cli

int main(int argc, char** argv) {
  using namespace lazytrain;
  try {
    cli::open_standard_streams();
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of the write, as a full disk is
    init_logging(spdlog::level::info);
    return cli::run(argc, argv);
  } catch (const cli::ReaderGone&) {
    return cli::kDone;
  } catch (const UsageError& error) {
    return cli::fail(cli::kWrongUsage, error.what());
  } catch (const Infeasible& error) {
    return cli::fail(cli::kInfeasible, error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    return cli::fail(cli::kFailed, fmt::format("{}: {}", error.path1().string(), error.code().message()).c_str());
  } catch (const std::bad_alloc&) {
    return cli::fail(cli::kFailed, "out of memory");
  } catch (const std::exception& error) {
    return cli::fail(cli::kFailed, error.what());
  }
}
