// lazytrain generate: the completion of one prompt.
#include "eval/generate.h"
#include "base/error.h"

#include <spdlog/spdlog.h>

#include "cli/command.h"
#include "cli/compute.h"
#include "cli/output.h"
#include "eval/prompt_format.h"
#include "train/planning.h"

namespace lazytrain::cli {
namespace {

struct GenerateArgs {
  std::string model;
  std::string prompt;
  std::string chat;
  std::string compute = "bf16";
  CLI::Option* prompt_option = nullptr;
  CLI::Option* chat_option = nullptr;
  eval::GenerateOptions options;
  int64_t seed = 0;
  bool json = false;
};

constexpr std::string_view name_of(eval::StopReason reason) {
  switch (reason) {
    case eval::StopReason::kStopId:
      return "end";
    case eval::StopReason::kMaxNewTokens:
      return "max-new-tokens";
    case eval::StopReason::kContext:
      return "context";
  }
  return "";
}

int generate_command(const GenerateArgs& args) {
  if (args.prompt_option->count() + args.chat_option->count() != 1) {
    throw UsageError("generate needs exactly one of --prompt and --chat");
  }
  const bool chat = args.chat_option->count() > 0;
  const DType compute = parse_compute(args.compute);
  const eval::PromptFormat format(args.model, chat);
  const std::vector<int32_t> prompt =
      chat ? format.conversation({{{"role", "user"}, {"content", args.chat}}}) : format.plain(args.prompt, true);
  ThreadPool pool(train::threads_of({}));
  const eval::InferenceModel model(args.model, compute, pool);
  eval::GenerateOptions options = args.options;
  options.batch = 1;
  options.seed = static_cast<uint64_t>(args.seed);
  options.stop_ids = format.stop_ids();
  std::string text;
  const eval::Generation generation = eval::stream(model, pool, format, prompt, options, [&](std::string_view piece) {
    if (args.json) {
      text += piece;
    } else {
      write_stdout(piece);
    }
  });
  if (args.json) {
    print(true,
          {{"text", text},
           {"tokens", generation.ids.size()},
           {"ids", generation.ids},
           {"stopped_by", name_of(generation.reason)}},
          "");
  } else {
    write_stdout("\n");
  }
  if (generation.reason == eval::StopReason::kContext) {
    spdlog::warn("stopped: the model's context of {} tokens is full", model.graph().max_positions);
  }
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Chosen& chosen) {
  auto args = std::make_shared<GenerateArgs>();
  CLI::App* command = add_command(app, chosen, "generate", "Print the completion of a prompt", args, generate_command);
  command->add_option("--model", args->model, "Model folder")->required();
  args->prompt_option = command->add_option("--prompt", args->prompt, "Text to continue");
  args->chat_option = command->add_option("--chat", args->chat, "A user's message, put into the model's chat template");
  command->add_option("--max-new-tokens", args->options.max_new_tokens, "Tokens at most")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--temperature", args->options.temperature, "0: greedy, the first of equal logits")
      ->capture_default_str();
  command->add_option("--seed", args->seed, "Of sampling, with a temperature")
      ->check(whole_number(0))
      ->capture_default_str();
  command->add_option("--compute", args->compute, "bf16 or fp32")->capture_default_str();
  command->add_flag("--json", args->json, "Print {text, tokens, ids, stopped_by} at the end");
}

}  // namespace lazytrain::cli
