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
  int64_t seed = 0;
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

// An end or beginning that is no token would be saved into every model made from this one.
void check_special_ids(const model::ModelConfig& config, const std::string& where, const text::Tokenizer* tokenizer) {
  const Json& keys = config.nested ? config.raw.at("text_config") : config.raw;
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    const auto found = keys.find(key);
    if (found == keys.end() || found->is_null()) continue;
    for (const Json& id : found->is_array() ? *found : Json::array({*found})) {
      const bool whole = id.is_number_integer() && id >= 0 && id < config.vocabulary;
      if (whole && (tokenizer == nullptr || tokenizer->has(id.get<int32_t>()))) continue;
      throw UsageError("{}: \"{}\" is {}, expected the id of a token, from 0 to {}{}", where, key, shown(id.dump(), 40),
                       config.vocabulary - 1, whole ? ": the tokenizer has none with this one" : "");
    }
  }
}

int new_model(const NewModelArgs& args) {
  const DType dtype = parse_weight_dtype(args.dtype);
  require_writable_target(args.out, args.force);
  const model::ModelConfig config = model::load_config(args.config);
  const graph::Graph graph = model::build_graph(config);
  const fs::path tokenizer = tokenizer_folder(args);
  if (!tokenizer.empty()) {
    const text::Tokenizer loaded = text::Tokenizer::load(tokenizer);
    if (loaded.vocab_size() > config.vocabulary) {
      throw UsageError("{}: the tokenizer has {} ids, the model's vocab_size is {}", tokenizer.string(),
                       loaded.vocab_size(), config.vocabulary);
    }
    check_special_ids(config, args.config, &loaded);
  } else {
    check_special_ids(config, args.config, nullptr);
  }
  ThreadPool pool(train::threads_of({}));
  runtime::ModelState state(graph, DType::kBF16);
  state.initialize(static_cast<uint64_t>(args.seed), &pool);
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
  command->add_option("--seed", args->seed, "The same seed gives the same weights")
      ->check(whole_number(0))
      ->capture_default_str();
  command->add_option("--tokenizer", args->tokenizer,
                      "Folder with a tokenizer; without it the one beside CONFIG is copied");
  command->add_option("--dtype", args->dtype, "bf16 or fp32")->capture_default_str();
  command->add_flag("--force", args->force, "Replace the model in a folder that is not empty");
  command->add_flag("--json", args->json, "Print {model, parameters, dtype, seed}");
  command->add_option("out", args->out, "The folder to write")->required()->type_name("OUT");
}

}  // namespace lazytrain::cli
