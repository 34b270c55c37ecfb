// lazytrain train: a run from its configuration file to a model folder.
#include "train/trainer.h"

#include "cli/command.h"

namespace lazytrain::cli {
namespace {

struct TrainArgs {
  std::string config;
  std::vector<std::string> overrides;
  train::TrainOptions options;
};

int train_command(const TrainArgs& args) {
  return train::run_training(train::load_run_config(args.config, args.overrides), args.options);
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
  command->footer([] { return "Keys of CONFIG.yaml, defaults and meaning:\n" + train::describe_keys(); });
}

}  // namespace lazytrain::cli
