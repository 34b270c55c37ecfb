// lazytrain train: a run from its configuration file to a model folder.
#include "train/trainer.h"

#include <cmath>

#include "cli/command.h"
#include "cli/output.h"

namespace lazytrain::cli {
namespace {

struct TrainArgs {
  std::string config;
  std::vector<std::string> overrides;
  train::TrainOptions options;
  bool json = false;
};

Json number_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json to_json(const train::TrainResult& result, bool dry_run) {
  Json json = {{"policy", result.policy}, {"predicted_step_s", result.predicted_step_s}};
  if (dry_run) return json;
  json.update({{"steps", result.steps},
               {"total_steps", result.total_steps},
               {"loss", number_or_null(result.loss)},
               {"eval_loss", number_or_null(result.eval_loss)},
               {"skipped", result.skipped},
               {"checkpoint", text_or_null(result.checkpoint.string())},
               {"model", text_or_null(result.model.string())}});
  return json;
}

int train_command(const TrainArgs& args) {
  const train::RunConfig config = train::load_run_config(args.config, args.overrides);
  const train::TrainResult result = train::run_training(config, args.options);
  if (args.json) print(true, to_json(result, args.options.dry_run), "");
  return result.exit_code;
}

}  // namespace

void add_train(CLI::App& app, Chosen& chosen) {
  auto args = std::make_shared<TrainArgs>();
  CLI::App* command = add_command(app, chosen, "train", "Train a model", args, train_command);
  command->add_option("config", args->config, "Configuration of the run (YAML)")->required()->type_name("CONFIG.yaml");
  command->add_option("overrides", args->overrides, "Keys set on the command line")->type_name("key=value ...");
  command->add_flag("--resume", args->options.resume, "Go on from the newest complete checkpoint of `output`");
  command->add_flag("--dry-run", args->options.dry_run,
                    "Print the plan, the memory table and the predicted step time; touch nothing");
  command->add_flag("--json", args->json,
                    "Print {policy, predicted_step_s, steps, total_steps, loss, eval_loss, skipped, checkpoint, model} "
                    "at the end; with --dry-run the first two");
  command->footer([] { return "Keys of CONFIG.yaml, defaults and meaning:\n" + train::describe_keys(); });
}

}  // namespace lazytrain::cli
