// lazytrain export: the model of a run as a Hugging Face folder.
#include <spdlog/spdlog.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/model_output.h"
#include "cli/output.h"
#include "model/family.h"
#include "train/checkpoint.h"
#include "train/export.h"
#include "train/planning.h"
#include "train/run_config.h"

namespace lazytrain::cli {
namespace {

namespace fs = std::filesystem;

struct ExportArgs {
  std::string run;
  std::string out;
  std::string dtype = "bf16";
  bool force = false;
  bool json = false;
};

// Where configuration and tokenizer come from: the run's own copy, else the model that the run started from.
fs::path base_model(const fs::path& run) {
  if (fs::exists(run / "model" / "config.json")) return run / "model";
  const train::RunConfig config = train::read_run_config(run / "config.yaml");
  if (!fs::exists(config.model / "config.json")) {
    throw UsageError("{}: the run's base model {} is not there (a relative path counts from the current folder)",
                     (run / "config.yaml").string(), config.model.string());
  }
  return config.model;
}

int export_command(const ExportArgs& args) {
  const DType dtype = parse_weight_dtype(args.dtype);
  const fs::path run = args.run;
  if (!fs::is_directory(run)) throw UsageError("{}: no such run folder", args.run);
  require_writable_target(args.out, args.force);
  const auto checkpoint = train::CheckpointFolder(run / "checkpoints").newest();
  if (!checkpoint && !fs::exists(run / "model" / "config.json")) {
    throw UsageError("{}: neither a complete checkpoint in checkpoints/ nor a model in model/", args.run);
  }
  const fs::path source = base_model(run);
  const model::ModelConfig config = model::load_config(source);
  const graph::Graph graph = model::build_graph(config);
  ThreadPool pool(train::threads_of({}));
  runtime::ModelState state(graph, DType::kBF16);
  if (checkpoint) {
    train::CheckpointFolder::load(*checkpoint, state, train::CheckpointFolder::Take::kWeights);
  } else {
    state.load_weights(model::ModelFolder(source), &pool);
  }
  train::export_model(config, state, source, args.out, dtype);
  const std::string from = (checkpoint ? *checkpoint : source).string();
  print(args.json, {{"model", args.out}, {"from", from}, {"dtype", args.dtype}},
        fmt::format("{}: {} weights of {}", args.out, args.dtype, from));
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Chosen& chosen) {
  auto args = std::make_shared<ExportArgs>();
  CLI::App* command =
      add_command(app, chosen, "export", "Write the model of a run as a Hugging Face folder", args, export_command);
  command->add_option("run", args->run, "Run folder (`output` of its configuration)")->required()->type_name("RUN");
  command->add_option("out", args->out, "The folder to write")->required()->type_name("OUT");
  command->add_option("--dtype", args->dtype, "bf16, or fp32: the exact master weights")->capture_default_str();
  command->add_flag("--force", args->force, "Replace the model in a folder that is not empty");
  command->add_flag("--json", args->json, "Print {model, from, dtype}");
}

}  // namespace lazytrain::cli
