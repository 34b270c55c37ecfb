// lazytrain tokenize: text to ids and back.
#include <fmt/ranges.h>

#include <charconv>

#include "base/error.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/output.h"
#include "text/tokenizer.h"

namespace lazytrain::cli {
namespace {

constexpr int64_t kMaxTextBytes = int64_t{1} << 31;  // what Tokenizer::encode takes

struct TokenizeArgs {
  std::string model;
  std::string text;
  std::string file;
  std::string decode;
  CLI::Option* text_option = nullptr;
  CLI::Option* file_option = nullptr;
  CLI::Option* decode_option = nullptr;
  bool no_special = false;
  bool json = false;
};

// "1,2,3"; an empty list is a list. Each must be the id of a token.
std::vector<int32_t> parse_ids(const std::string& list, const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at != end) {
    uint32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error == std::errc::invalid_argument || (next != end && (*next != ',' || next + 1 == end))) {
      throw UsageError("--decode: '{}' is no list of ids. Write them as 1,2,3.", shown(list));
    }
    if (error != std::errc() || id > INT32_MAX || !tokenizer.has(static_cast<int32_t>(id))) {
      throw UsageError("--decode: no token has the id {}: the vocabulary has {} ids, from 0 to {}{}",
                       shown(std::string_view(at, next)), tokenizer.vocab_size(), tokenizer.vocab_size() - 1,
                       error == std::errc() && id < tokenizer.vocab_size() ? ", and this one is left out" : "");
    }
    ids.push_back(static_cast<int32_t>(id));
    at = next == end ? end : next + 1;
  }
  return ids;
}

int tokenize(const TokenizeArgs& args) {
  if (args.text_option->count() + args.file_option->count() + args.decode_option->count() != 1) {
    throw UsageError("tokenize needs exactly one of --text, --file and --decode");
  }
  const text::Tokenizer tokenizer = text::Tokenizer::load(args.model);
  if (args.decode_option->count() > 0) {
    const std::string text = tokenizer.decode(parse_ids(args.decode, tokenizer), args.no_special);
    print(args.json, {{"text", text}}, text + "\n");
    return 0;
  }
  const std::string text = args.file_option->count() > 0 ? read_file(args.file, kMaxTextBytes) : args.text;
  const std::vector<int32_t> ids = tokenizer.encode(text, {.parse_special = !args.no_special});
  print(args.json, {{"ids", ids}}, fmt::format("{}", fmt::join(ids, ",")));
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& app, Chosen& chosen) {
  auto args = std::make_shared<TokenizeArgs>();
  CLI::App* command =
      add_command(app, chosen, "tokenize", "Turn text into token ids, or ids into text", args, tokenize);
  command->add_option("--model", args->model, "Model folder; tokenizer files alone are enough")->required();
  args->text_option = command->add_option("--text", args->text, "The text");
  args->file_option = command->add_option("--file", args->file, "A file with the text, taken byte for byte");
  args->decode_option = command->add_option("--decode", args->decode, "Ids to turn into text: 1,2,3");
  command->add_flag("--no-special", args->no_special,
                    "Read the names of special tokens as plain text; leave them out when decoding");
  command->add_flag("--json", args->json, "Print {ids} or {text}");
}

}  // namespace lazytrain::cli
