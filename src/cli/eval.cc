// lazytrain eval: exact match and loss of a model on a data file.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/compute.h"
#include "cli/output.h"
#include "eval/evaluate.h"
#include "train/planning.h"

namespace lazytrain::cli {
namespace {

struct EvalArgs {
  std::string model;
  std::string data;
  std::string chat_template = "chat";
  std::string compute = "bf16";
  std::string out;
  eval::EvalOptions options;
  bool json = false;
};

// A live line on a terminal, nothing otherwise.
void show_progress(int64_t answered, int64_t total) {
  if (::isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r%lld of %lld answered", static_cast<long long>(answered), static_cast<long long>(total));
  if (answered == total) std::fputc('\n', stderr);
}

int eval_command(const EvalArgs& args) {
  if (args.chat_template != "chat" && args.chat_template != "none") {
    throw UsageError("--template: '{}' is not one of chat, none", args.chat_template);
  }
  eval::EvalOptions options = args.options;
  options.model = args.model;
  options.data = args.data;
  options.chat_template = args.chat_template == "chat";
  options.compute = parse_compute(args.compute);
  options.on_progress = show_progress;
  ThreadPool pool(train::threads_of({}));
  const eval::EvalResult result = eval::evaluate(options, pool);
  if (!args.out.empty()) write_file(args.out, eval::to_jsonl(result.questions));
  print(args.json,
        {{"exact_match", result.exact_match},
         {"correct", result.correct},
         {"total", result.total},
         {"loss", result.loss}},
        fmt::format("exact match {:.2f}% ({} of {}), loss {:.4f}", 100 * result.exact_match, result.correct,
                    result.total, result.loss));
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Chosen& chosen) {
  auto args = std::make_shared<EvalArgs>();
  eval::EvalOptions& options = args->options;
  CLI::App* command = add_command(app, chosen, "eval", "Exact match and loss on a data file", args, eval_command);
  command->add_option("--model", args->model, "Model folder")->required();
  command->add_option("--data", args->data, "JSON or JSONL file, as for training")->required();
  command->add_option("--prompt", options.fields.prompt, "Key of a row's prompt; found by name without it");
  command->add_option("--response", options.fields.response, "Key of a row's response; found by name without it");
  command->add_option("--template", args->chat_template, "chat: the model's own, where it has one; none")
      ->capture_default_str();
  command->add_option("--compute", args->compute, "bf16 or fp32")->capture_default_str();
  command->add_option("--seq", options.seq, "Tokens of a sample that the loss counts")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--limit", options.limit, "Rows from the start of the file, 0: all")
      ->check(whole_number(0))
      ->capture_default_str();
  command->add_option("--batch", options.batch, "Sequences generated at a time")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--max-new-tokens", options.max_new_tokens, "Tokens of an answer at most")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--out", args->out, "File for a JSON line a question");
  command->add_flag("--json", args->json, "Print {exact_match, correct, total, loss}");
}

}  // namespace lazytrain::cli
