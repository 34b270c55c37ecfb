#include "training_runs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/units.h"

namespace lazytrain::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kRows = 256;
constexpr int kCharacters = 6000;  // more than any row has tokens

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

int call(const std::vector<std::string>& words, const fs::path& log) {
  std::string line;
  for (const std::string& word : words) line += quoted(word) + " ";
  return std::system((line + ">" + quoted(log.string()) + " 2>&1").c_str());
}

std::string last_lines(const fs::path& file) {
  const std::string text = read_file(file, int64_t{1} << 24);
  return text.substr(text.size() - std::min<size_t>(text.size(), 600));
}

}  // namespace

TrainingRuns::TrainingRuns(const std::vector<std::string>& words) {
  constexpr const char* kUsage = "usage: PROGRAM LAZYTRAIN FOLDER [--seconds N] [--only TEXT]";
  double seconds = 1e9;
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i].starts_with("--")) {
      if (i + 1 == words.size()) throw UsageError(kUsage);
      if (words[i] == "--seconds") {
        seconds = static_cast<double>(parse_bytes(words[++i], "--seconds"));
      } else if (words[i] == "--only") {
        only_ = words[++i];
      } else {
        throw UsageError(kUsage);
      }
    } else if (lazytrain_.empty()) {
      lazytrain_ = words[i];
    } else {
      folder_ = words[i];
    }
  }
  if (folder_.empty()) throw UsageError(kUsage);
  until_s_ = now_s() + seconds;
  fs::create_directories(folder_);
}

fs::path TrainingRuns::model(const std::string& name, const Json& config) {
  const fs::path folder = folder_ / ("model-" + name);
  if (fs::exists(folder / "config.json")) return folder;
  const fs::path file = folder_ / (name + ".json"), log = folder_ / (name + ".log");
  write_file(file, config.dump(2));
  const std::string tokenizer = std::string(LAZYTRAIN_SOURCE_DIR) + "/demo/tokenizer";
  if (call({lazytrain_.string(), "new-model", "--config", file.string(), "--tokenizer", tokenizer, "--seed", "1",
            folder.string()},
           log) != 0) {
    throw RunError("{}: no model: {}", folder.string(), last_lines(log));
  }
  return folder;
}

// Texts longer than a row, cut on the right.
fs::path TrainingRuns::data() {
  const fs::path file = folder_ / "rows.jsonl";
  if (fs::exists(file)) return file;
  std::ofstream out(file);
  const CounterRng rng(3, 5);
  for (uint64_t row = 0; row < kRows; ++row) {
    std::string text;
    for (uint64_t i = 0; i < kCharacters; ++i) {
      text += i % 4 == 3 ? ' ' : static_cast<char>('0' + rng.below(row * kCharacters + i, 10));
    }
    out << fmt::format(R"({{"prompt": "", "response": "{}"}})", text) << '\n';
  }
  return file;
}

std::optional<Json> TrainingRuns::run(const std::string& name, const fs::path& model,
                                      const std::vector<std::string>& keys) {
  const fs::path output = folder_ / name, summary = output / "summary.json", log = folder_ / (name + ".log");
  if (!fs::exists(summary)) {
    if (now_s() > until_s_ || name.find(only_) == std::string::npos) {
      ++left_;
      return std::nullopt;
    }
    fmt::print(stderr, "{} ...\n", name);
    fs::remove_all(output);
    const fs::path config = folder_ / "run.yaml";
    write_file(config, fmt::format("model: {}\noutput: {}\ndata: {{train: {}, template: none, pack: false, shuffle: "
                                   "false}}\noptimizer: {{lr: 1.0e-5, schedule: constant, warmup: 0}}\n",
                                   model.string(), output.string(), data().string()));
    std::vector<std::string> words = {lazytrain_.string(), "train", config.string()};
    words.insert(words.end(), keys.begin(), keys.end());
    if (call(words, log) != 0 || !fs::exists(summary)) {
      fmt::print(stderr, "{} failed: {}\n", name, last_lines(log));
      return Json(nullptr);
    }
    for (const char* large : {"checkpoints", "model"}) fs::remove_all(output / large);
  }
  return read_json(summary);
}

Json TrainingRuns::plan_of(const std::string& name) const { return read_json(folder_ / name / "plan.json"); }

double busy_percent(const Json& step, const std::string& lane) {
  return 100 * step.at("lanes").at(lane).at("busy_s").get<double>() / step.at("step_s").get<double>();
}

}  // namespace lazytrain::bench
