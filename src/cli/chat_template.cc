// lazytrain chat-template: messages to the text that the model was trained on.
#include "text/chat_template.h"

#include "base/error.h"
#include "cli/command.h"
#include "cli/output.h"

namespace lazytrain::cli {
namespace {

constexpr int64_t kMaxMessagesBytes = int64_t{1} << 28;

struct ChatTemplateArgs {
  std::string model;
  std::string messages;
  bool json = false;
};

int chat_template(const ChatTemplateArgs& args) {
  const auto chat = text::ChatTemplate::load(args.model);
  if (!chat) {
    throw UsageError("{}: no chat template: neither chat_template.jinja nor \"chat_template\" in tokenizer_config.json",
                     args.model);
  }
  const Json variables = read_json(args.messages, kMaxMessagesBytes);
  if (!variables.is_object() || !variables.contains("messages") || !variables.at("messages").is_array()) {
    throw InputError("{}: expected an object {{\"messages\": [...], \"add_generation_prompt\": true or false, ...}}",
                     args.messages);
  }
  std::string text;
  try {
    text = chat->render(variables);
  } catch (const text::RaisedError& error) {
    throw RunError("{}: the template refuses these messages: {}", chat->where(), error.what());
  }
  if (args.json) {
    print(true, {{"text", text}}, "");
  } else {
    write_stdout(text);  // to the byte
  }
  return 0;
}

}  // namespace

void add_chat_template(CLI::App& app, Chosen& chosen) {
  auto args = std::make_shared<ChatTemplateArgs>();
  CLI::App* command =
      add_command(app, chosen, "chat-template", "Render messages with a model's chat template", args, chat_template);
  command->add_option("--model", args->model, "Model folder; tokenizer files alone are enough")->required();
  command->add_option("--messages", args->messages, "JSON file: {messages, add_generation_prompt, other variables}")
      ->required();
  command->add_flag("--json", args->json, "Print {text}");
}

}  // namespace lazytrain::cli
