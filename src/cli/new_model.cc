// lazytrain new-model: a model folder with random weights.
#include <spdlog/spdlog.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/model_output.h"
#include "cli/output.h"
#include "model/family.h"
#include "runtime/model_state.h"
#include "text/tokenizer.h"
#include "train/export.h"
#include "train/planning.h"

namespace lazytrain::cli {
namespace {

namespace fs = std::filesystem;

struct NewModelArgs {
  std::string config;
  std::string tokenizer;
  std::string out;
  std::string dtype = "bf16";
  uint64_t seed = 0;
  bool force = false;
  bool json = false;
};

// The folder whose tokenizer the model gets; empty: none.
fs::path tokenizer_folder(const NewModelArgs& args) {
  if (!args.tokenizer.empty()) {
    if (!fs::exists(fs::path(args.tokenizer) / "tokenizer.json")) {
      throw UsageError("--tokenizer: {} has no tokenizer.json", args.tokenizer);
    }
    return args.tokenizer;
  }
  const fs::path config = args.config;
  const fs::path beside = fs::is_directory(config) ? config : fs::absolute(config).parent_path();
  return fs::exists(beside / "tokenizer.json") ? beside : fs::path();
}

int new_model(const NewModelArgs& args) {
  const DType dtype = parse_weight_dtype(args.dtype);
  require_writable_target(args.out, args.force);
  const model::ModelConfig config = model::load_config(args.config);
  const graph::Graph graph = model::build_graph(config);
  const fs::path tokenizer = tokenizer_folder(args);
  if (!tokenizer.empty()) {
    const int64_t ids = text::Tokenizer::load(tokenizer).vocab_size();
    if (ids > config.vocabulary) {
      throw UsageError("{}: the tokenizer has {} ids, the model's vocab_size is {}", tokenizer.string(), ids,
                       config.vocabulary);
    }
  }
  ThreadPool pool(train::threads_of({}));
  runtime::ModelState state(graph, DType::kBF16);
  state.initialize(args.seed, &pool);
  train::export_model(config, state, tokenizer.empty() ? fs::path(args.out) : tokenizer, args.out, dtype);
  const int64_t parameters = graph.parameter_count();
  print(args.json, {{"model", args.out}, {"parameters", parameters}, {"dtype", args.dtype}, {"seed", args.seed}},
        fmt::format("{}: {} parameters, {}{}", args.out, format_count(static_cast<double>(parameters)), args.dtype,
                    tokenizer.empty() ? ", no tokenizer" : ""));
  return 0;
}

}  // namespace

void add_new_model(CLI::App& app, Chosen& chosen) {
  auto args = std::make_shared<NewModelArgs>();
  CLI::App* command =
      add_command(app, chosen, "new-model", "Write a model folder with random weights", args, new_model);
  command->add_option("--config", args->config, "config.json, or a folder with one")->required();
  command->add_option("--seed", args->seed, "The same seed gives the same weights")->capture_default_str();
  command->add_option("--tokenizer", args->tokenizer,
                      "Folder with a tokenizer; without it the one beside CONFIG is copied");
  command->add_option("--dtype", args->dtype, "bf16 or fp32")->capture_default_str();
  command->add_flag("--force", args->force, "Replace the model in a folder that is not empty");
  command->add_flag("--json", args->json, "Print {model, parameters, dtype, seed}");
  command->add_option("out", args->out, "The folder to write")->required()->type_name("OUT");
}

}  // namespace lazytrain::cli
