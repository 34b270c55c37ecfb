// The subcommands. Each file adds one to the application: options, help and what to run; the work itself is done by the
// rooms below.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/json.h"

namespace lazytrain::cli {

// What the command line asks for, as an exit code once it ran; set by the callback of the parsed subcommand.
using Chosen = std::function<int()>;

void add_train(CLI::App& app, Chosen& chosen);
void add_plan(CLI::App& app, Chosen& chosen);
void add_simulate(CLI::App& app, Chosen& chosen);
void add_profile(CLI::App& app, Chosen& chosen);
void add_eval(CLI::App& app, Chosen& chosen);
void add_generate(CLI::App& app, Chosen& chosen);
void add_tokenize(CLI::App& app, Chosen& chosen);
void add_chat_template(CLI::App& app, Chosen& chosen);
void add_new_model(CLI::App& app, Chosen& chosen);
void add_export(CLI::App& app, Chosen& chosen);
void add_doctor(CLI::App& app, Chosen& chosen);
void add_report(CLI::App& app, Chosen& chosen);
void add_version(CLI::App& app, Chosen& chosen);

// Adds a subcommand whose arguments live in one Args; `run` gets them when the subcommand was named.
template <typename Args>
CLI::App* add_command(CLI::App& app, Chosen& chosen, const std::string& name, const std::string& description,
                      const std::shared_ptr<Args>& args, int (*run)(const Args&)) {
  CLI::App* command = app.add_subcommand(name, description);
  command->callback([args, run, &chosen] { chosen = [args, run] { return run(*args); }; });
  return command;
}

// For options that are whole numbers from `min` on: CLI11 alone takes the nearest number that it can hold for one that
// is too large, and -1 for a large unsigned one.
inline CLI::Validator whole_number(int64_t min) {
  const auto check = [min](const std::string& text) -> std::string {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && value >= min) return "";
    return "'" + shown(text) + "' is not a whole number from " + std::to_string(min) + " to " +
           std::to_string(INT64_MAX);
  };
  return CLI::Validator(check, "");
}

}  // namespace lazytrain::cli
